/* fp8.h: a matrix in act to FP8 and back: scales, rounding, codes. See tutti/numerics/fp8.h.
 *
 * Rounding to nearest even is one integer addition in the normal range; below it, one addition of a
 * number whose last place is the format's smallest. Both are computed and one is kept. */
#ifndef TUTTI_KERNELS_GENERIC_FP8_H
#define TUTTI_KERNELS_GENERIC_FP8_H

#include "kernels/generic/census.h"
#include "tutti/numerics/fp8.h"

enum { FP8_RUN = 4096 }; /* elements that a thread takes at a time: whole steps */

/* What a format's numbers look like from FP32. */
typedef struct fp8_grid {
    uint32_t drop;   /* mantissa bits of FP32 that it does not have */
    uint32_t rebias; /* difference of exponent biases, in its codes */
    uint32_t last;   /* code of the largest number */
    float most, least_normal;
    float whole; /* the last place of numbers near it is the format's smallest number */
} fp8_grid;

static inline fp8_grid fp8_grid_of(tt_format format)
{
    const tt_format_info *f = &tt_formats[format];
    const uint32_t m = (uint32_t)f->mantissa_bits;
    const uint32_t bias = (1u << (f->exponent_bits - 1)) - 1;
    return (fp8_grid){.drop = 23 - m,
                      .rebias = (127 - bias) << m,
                      .last = format == TT_E4M3 ? 0x7eu : 0x7bu,
                      .most = (float)f->max,
                      .least_normal = (float)f->min_normal,
                      .whole = (float)(f->min_subnormal * 0x1p23)};
}

/* x, scaled, to the nearest number of the grid; *code is its code. Saturates; NaN, whose code is 0x7f
 * in both formats, stays NaN. */
static inline vec fp8_nearest(const fp8_grid *g, vec x, vec_bits *code)
{
    const vec_bits sign = (vec_bits)x & 0x80000000u, nan = (vec_bits)(x != x);
    const vec size = vec_min(vec_all(g->most), (vec)((vec_bits)x ^ sign));
    const vec_bits small = (vec_bits)(size < g->least_normal), bits = (vec_bits)size;
    const vec_bits half = ((bits >> g->drop) & 1u) + ((1u << (g->drop - 1)) - 1);
    const vec_bits normal = (bits + half) >> g->drop;
    const vec near = size + g->whole, tiny = near - g->whole;
    const vec_bits units = (vec_bits)near - tt_bits_of_f32(g->whole);
    const vec_bits unsigned_code = vec_where(small, units, normal - g->rebias);
    const vec_bits value = vec_where(small, (vec_bits)tiny, normal << g->drop);
    *code = vec_where(nan, (vec_bits){0} + 0x7fu, unsigned_code) | sign >> 24;
    return (vec)(vec_where(nan, (vec_bits){0} + 0x7fc00000u, value) | sign);
}

/* The number of a code, unscaled. */
static inline vec fp8_number(const fp8_grid *g, vec_bits code)
{
    const vec_bits size = code & 0x7fu, sign = (code & 0x80u) << 24;
    const uint32_t m = 23 - g->drop;
    const vec_bits small = (vec_bits)(size < (1u << m));
    const vec_bits normal = (size + g->rebias) << g->drop;
    const vec tiny = (vec)(size + tt_bits_of_f32(g->whole)) - g->whole;
    const vec_bits value = vec_where(small, (vec_bits)tiny, normal);
    const vec_bits beyond = (vec_bits)(size > g->last);
    const vec_bits payload = (size & ((1u << m) - 1)) << g->drop; /* none: an infinity */
    return (vec)(vec_where(beyond, payload | 0x7f800000u, value) | sign);
}

/* The largest magnitude of x[n], as bits: they order as magnitudes do, infinity and NaN last. */
static inline uint32_t fp8_most(const act *x, int64_t n)
{
    vec_bits most[PARTS] = {{0}};
    for (int64_t i = 0; i < n; i += LANES) {
        const wide f = wide_load_act(x + i, n - i);
        EACH_PART(p)
        {
            const vec_bits size = (vec_bits)f.part[p] & 0x7fffffffu;
            most[p] = vec_where((vec_bits)(size > most[p]), size, most[p]);
        }
    }
    uint32_t all = 0;
    for (int p = 0; p < PARTS; p++) {
        for (int l = 0; l < VEC; l++) {
            all = most[p][l] > all ? most[p][l] : all;
        }
    }
    return all;
}

/* The same of a large x, by all threads. */
static inline uint32_t fp8_most_of_all(const tt_ctx *ctx, const act *x, int64_t n)
{
    uint32_t most = 0;
#pragma omp parallel for num_threads(ctx->threads) reduction(max : most)
    for (int64_t i = 0; i < n; i += FP8_RUN) {
        const uint32_t here = fp8_most(x + i, tt_min(FP8_RUN, n - i));
        most = here > most ? here : most;
    }
    return most;
}

static void generic_fp8_scale(tt_ctx *ctx, int8_t *exponent, float *amax, const void *x_,
                              int64_t rows, int64_t width, int64_t size, tt_format format)
{
    const act *x = x_;
    const int64_t across = tt_fp8_blocks(width, size);
    uint32_t most = 0;
    if (size > FP8_RUN) { /* few blocks: the threads share each */
        for (int64_t b = 0; b < rows * across; b++) {
            const int64_t first = b % across * size;
            const uint32_t here =
                fp8_most_of_all(ctx, x + b / across * width + first, tt_min(size, width - first));
            exponent[b] = tt_fp8_exponent(format, tt_f32_of_bits(here), 0);
            most = here > most ? here : most;
        }
    } else {
#pragma omp parallel for num_threads(ctx->threads) reduction(max : most)
        for (int64_t row = 0; row < rows; row++) {
            for (int64_t b = 0; b < across; b++) {
                const uint32_t here =
                    fp8_most(x + row * width + b * size, tt_min(size, width - b * size));
                exponent[row * across + b] = tt_fp8_exponent(format, tt_f32_of_bits(here), 0);
                most = here > most ? here : most;
            }
        }
    }
    if (amax != NULL) {
        const float largest = most >= 0x7f800000u ? INFINITY : tt_f32_of_bits(most);
        *amax = largest > *amax ? largest : *amax;
    }
}

/* Codes of a step, as bytes and in lanes; n of them, or all. */
static inline void fp8_put(uint8_t *restrict code, const uint32_t *restrict lane, int64_t n)
{
    if (n >= LANES) {
        for (int l = 0; l < LANES; l++) {
            code[l] = (uint8_t)lane[l];
        }
    } else {
        uint8_t few[LANES];
        for (int l = 0; l < LANES; l++) {
            few[l] = (uint8_t)lane[l];
        }
        COPY_FEW(uint8_t, code, few, n);
    }
}

static inline void fp8_take(uint32_t *restrict lane, const uint8_t *restrict code, int64_t n)
{
    if (n >= LANES) {
        for (int l = 0; l < LANES; l++) {
            lane[l] = code[l];
        }
    } else {
        memset(lane, 0, LANES * sizeof *lane);
        COPY_FEW(uint32_t, lane, code, n);
    }
}

/* Counts n codes, or LANES of them, made of x[n] by the factor `up`. Saturated is what rounds beyond the
 * largest number. */
__attribute__((cold, noinline, unused)) static void fp8_census(tt_census *census, const fp8_grid *g,
                                                               const uint32_t *code, const act *x,
                                                               int64_t n, float up)
{
    tt_census *mine = census + tt_thread_id();
    for (int64_t i = 0; i < tt_min(n, LANES); i++) {
        const uint32_t was = tt_bits_of_f32(f32_of_act(x[i])) & 0x7fffffffu;
        const uint32_t bits = tt_bits_of_f32(f32_of_act(x[i]) * up) & 0x7fffffffu;
        const uint32_t nearest =
            (bits + ((1u << (g->drop - 1)) - 1) + (bits >> g->drop & 1u)) >> g->drop;
        const uint32_t size = code[i] & 0x7fu;
        const bool nan = size > g->last;
        mine->nan += nan;
        mine->overflow += !nan && nearest > g->last + g->rebias;
        mine->underflow += size == 0 && was != 0;
    }
    mine->values += tt_min(n, LANES);
}

/* n elements that share a scale. */
static inline void fp8_round_run(tt_census *census, const fp8_grid *g, uint8_t *code, act *x,
                                 int64_t n, int exponent, bool replace)
{
    const vec up = vec_all(tt_fp8_scale(exponent)), down = vec_all(tt_fp8_scale(-exponent));
    const vec back = exponent == TT_FP8_NAN ? up : down;
    for (int64_t i = 0; i < n; i += LANES) {
        wide f = wide_load_act(x + i, n - i);
        uint32_t codes[LANES];
        EACH_PART(p)
        {
            vec_bits c;
            f.part[p] = fp8_nearest(g, f.part[p] * up, &c) * back;
            memcpy(codes + p * VEC, &c, sizeof c);
        }
        if (__builtin_expect(census != NULL, 0)) {
            fp8_census(census, g, codes, x + i, n - i, tt_fp8_scale(exponent));
        }
        if (replace) {
            wide_store_act(x + i, f, n - i);
        }
        if (code != NULL) {
            fp8_put(code + i, codes, n - i);
        }
    }
}

/* Cuts [rows, width] into runs of at most FP8_RUN elements that lie in one block. */
typedef struct fp8_cut {
    int64_t width, size, across, runs; /* blocks in a row, runs in a block */
} fp8_cut;

static inline fp8_cut fp8_cut_of(int64_t width, int64_t size)
{
    return (fp8_cut){width, size, tt_fp8_blocks(width, size),
                     tt_ceil_div(tt_min(size, width), FP8_RUN)};
}

/* Run number `at`: its first element, its length (0: none there), its block. */
static inline int64_t fp8_run_of(const fp8_cut *cut, int64_t at, int64_t *first, int64_t *block)
{
    const int64_t run = at % cut->runs, column = at / cut->runs % cut->across;
    const int64_t row = at / cut->runs / cut->across, begin = column * cut->size + run * FP8_RUN;
    const int64_t end = tt_min(cut->width, tt_min(begin + FP8_RUN, (column + 1) * cut->size));
    *first = row * cut->width + begin;
    *block = row * cut->across + column;
    return tt_max(0, end - begin);
}

static void generic_fp8_round(tt_ctx *ctx, uint8_t *code, void *x_, const int8_t *exponent,
                              int64_t rows, int64_t width, int64_t size, tt_format format,
                              bool replace)
{
    act *x = x_;
    const fp8_grid grid = fp8_grid_of(format);
    const fp8_cut cut = fp8_cut_of(width, size);
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t at = 0; at < rows * cut.across * cut.runs; at++) {
        int64_t first, block, n = fp8_run_of(&cut, at, &first, &block);
        if (n > 0) {
            fp8_round_run(ctx->count.result, &grid, code != NULL ? code + first : NULL, x + first,
                          n, exponent[block], replace);
        }
    }
}

static void generic_fp8_value(tt_ctx *ctx, void *x_, const uint8_t *code, const int8_t *exponent,
                              int64_t rows, int64_t width, int64_t size, tt_format format)
{
    act *x = x_;
    const fp8_grid grid = fp8_grid_of(format);
    const fp8_cut cut = fp8_cut_of(width, size);
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t at = 0; at < rows * cut.across * cut.runs; at++) {
        int64_t first, block, n = fp8_run_of(&cut, at, &first, &block);
        const int e = n > 0 ? exponent[block] : 0;
        const vec down = vec_all(tt_fp8_scale(e == TT_FP8_NAN ? e : -e));
        for (int64_t i = 0; i < n; i += LANES) {
            uint32_t codes[LANES];
            wide f;
            fp8_take(codes, code + first + i, n - i);
            EACH_PART(p)
            {
                vec_bits c;
                memcpy(&c, codes + p * VEC, sizeof c);
                f.part[p] = fp8_number(&grid, c) * down;
            }
            wide_store_act(x + first + i, f, n - i);
        }
    }
}

#endif
