/* test_exact.c: exact mode's promise, for every table: with fixed-point accumulators a batch gives the
 * same bits in any grouping, any order, on any number of threads; each summand is the leaf that the
 * floats get; what is lost is counted; reading accumulators means their floats.
 *
 * A pass runs every operation that sums over rows, on some sequences of one batch. */
#include "kernels/kernels_impl.h"
#include "rig.h"

enum { B = 6, THREADS = 3, SUMS = 7 };
enum { GW, GB, GGAIN, GBIAS, GWTE, GWPE, GHEAD };
static const char *const sum_names[SUMS] = {"gw", "gb", "ggain", "gbias", "gwte", "gwpe", "ghead"};

static const tt_extents extents = {.rows = B * 1030,
                                   .tokens = 1030,
                                   .channels = 160,
                                   .ffn = 160,
                                   .vocab = 160,
                                   .heads = 1,
                                   .head_size = 8};

/* Neither multiples of a tile nor of a step; the long leaf has more rows than a chunk of head_loss. */
static const struct shape {
    int64_t T, N, K, V;
} shapes[] = {{1, 101, 150, 61},
              {7, 101, 150, 61},
              {64, 101, 66, 61},
              {100, 37, 131, 45},
              {1030, 21, 35, 19}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* One batch, and what is known of it. */
typedef struct batch {
    int64_t T, N, K, V;
    int32_t *token, *target;
    void *dy, *x, *dz, *gain, *w; /* [B*T,N], [B*T,K], [B*T,K], [K], [V,K] */
    float *mean, *rstd;           /* [B*T] */
    tt_weight weight;
    tt_fixed point;
} batch;

/* Accumulators of either kind. */
typedef struct totals {
    tt_grad sum[SUMS];
    int64_t size[SUMS], lost[SUMS], count;
    tt_exact loss;
} totals;

static const int64_t samples[B] = {3, 1, 4, 123456789012, 5, 9};

static void *at(const rig *r, const void *array, int64_t element)
{
    return (char *)(uintptr_t)array + (size_t)element * rig_size(r);
}

static batch batch_open(rig *r, const struct shape *s)
{
    const int64_t M = B * s->T;
    r->stream = 0;
    batch b = {.T = s->T, .N = s->N, .K = s->K, .V = s->V, .point = tt_fixed_make(B, s->T, 1)};
    b.token = rig_tokens(r, M, b.V < 9 ? b.V : 9); /* some often */
    b.target = rig_tokens(r, M, b.V - 3);
    for (int64_t i = 2; i < M; i += 5) {
        b.target[i] = -1;
    }
    b.dy = rig_random(r, M * b.N, 1);
    b.x = rig_random(r, M * b.K, 1);
    b.dz = rig_random(r, M * b.K, 1);
    b.gain = rig_random(r, b.K, 1);
    b.w = rig_random(r, b.V * b.K, 0.1);
    b.mean = rig_floats(r, M, 0.1);
    b.rstd = rig_floats(r, M, 1);
    b.weight = rig_weight(r, b.w, b.V, b.K, true);
    return b;
}

static void batch_close(batch *b)
{
    rig_unpack(&b->weight);
    free(b->token), free(b->target), free(b->dy), free(b->x), free(b->dz), free(b->gain);
    free(b->w), free(b->mean), free(b->rstd);
}

/* Fixed: all at some start that is not zero. Floats: zero. */
static totals *totals_open(const batch *b, bool fixed)
{
    totals *t = rig_block(sizeof *t);
    const int64_t size[SUMS] = {b->N * b->K, b->N,        b->K,       b->K,
                                b->V * b->K, b->T * b->K, b->V * b->K};
    *t = (totals){.count = 0};
    for (int s = 0; s < SUMS; s++) {
        t->size[s] = size[s];
        if (fixed) {
            int64_t *q = rig_block((size_t)size[s] * sizeof *q);
            for (int64_t i = 0; i < size[s]; i++) {
                q[i] = 1000 * s - i;
            }
            t->sum[s] = (tt_grad){.fixed = q, .point = &b->point, .lost = &t->lost[s]};
        } else {
            t->sum[s].sum = rig_block((size_t)size[s] * sizeof(float));
            memset(t->sum[s].sum, 0, (size_t)size[s] * sizeof(float));
        }
    }
    return t;
}

static void totals_close(totals *t)
{
    for (int s = 0; s < SUMS; s++) {
        free(t->sum[s].sum), free(t->sum[s].fixed);
    }
    free(t);
}

static void head(rig *r, const batch *b, totals *t, int64_t row, int64_t rows, int64_t leaf)
{
    void *dx = rig_acts(r, rows * b->K);
    r->ops.head_loss(&r->ctx, &t->loss, &t->count, NULL, dx, &t->sum[GHEAD],
                     at(r, b->x, row * b->K), &b->weight, b->target + row, rows, b->V, b->V - 3,
                     b->K, leaf, 1);
    free(dx);
}

/* Sequences first .. first + count - 1. */
static void pass(rig *r, const batch *b, totals *t, int64_t first, int64_t count)
{
    const int64_t T = b->T, N = b->N, K = b->K, M = count * T, m = first * T;
    const tt_dropout drop = rig_dropout(0.2, samples + first);
    void *dx = rig_acts(r, M * K), *x = at(r, b->x, m * K), *dz = at(r, b->dz, m * K);
    memset(dx, 0, (size_t)(M * K) * rig_size(r));
    r->ops.gemm_tn(&r->ctx, &t->sum[GW], &t->sum[GB], at(r, b->dy, m * N), x, M, N, K, T);
    r->ops.norm_grad(&r->ctx, dx, &t->sum[GGAIN], &t->sum[GBIAS], dz, x, b->gain, b->mean + m,
                     b->rstd + m, M, K, T);
    r->ops.embed_grad(&r->ctx, &t->sum[GWTE], &t->sum[GWPE], dz, b->token + m, count, T, K, &drop);
    head(r, b, t, m, M, T);
    free(dx);
}

static void assert_same(const rig *r, const batch *b, const totals *t, const totals *want,
                        const char *how)
{
    for (int s = 0; s < SUMS; s++) {
        const size_t bytes = (size_t)t->size[s] * sizeof *t->sum[s].fixed;
        ck_assert_msg(memcmp(t->sum[s].fixed, want->sum[s].fixed, bytes) == 0,
                      "%s %s, T %lld: %s differs %s", r->ops.isa, tt_formats[r->ops.compute].name,
                      (long long)b->T, sum_names[s], how);
        ck_assert_int_eq(t->lost[s], want->lost[s]);
    }
    ck_assert(tt_exact_value(&t->loss) == tt_exact_value(&want->loss));
    ck_assert_int_eq(t->count, want->count);
}

/* A way through the batch: calls, each from one sequence on, for so many. */
typedef struct way {
    const char *how;
    int threads, calls;
    int first[B], count[B];
} way;

static const way ways[] = {
    {"on 1 thread", 1, 1, {0}, {6}},
    {"on 3 threads", 3, 1, {0}, {6}},
    {"one by one", 2, 6, {0, 1, 2, 3, 4, 5}, {1, 1, 1, 1, 1, 1}},
    {"backwards", 1, 6, {5, 4, 3, 2, 1, 0}, {1, 1, 1, 1, 1, 1}},
    {"in disorder", 3, 6, {3, 0, 5, 1, 4, 2}, {1, 1, 1, 1, 1, 1}},
    {"by two", 3, 3, {2, 4, 0}, {2, 2, 2}},
    {"by three", 1, 2, {3, 0}, {3, 3}},
    {"by one, three and two", 2, 3, {3, 0, 4}, {1, 3, 2}},
};

static void any_way(rig *r)
{
    for (int s = 0; s < SHAPES; s++) {
        batch b = batch_open(r, &shapes[s]);
        totals *whole = totals_open(&b, true);
        r->ctx.threads = 2;
        pass(r, &b, whole, 0, B);
        for (int i = 0; i < SUMS; i++) {
            ck_assert_int_eq(whole->lost[i], 0);
        }
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            totals *other = totals_open(&b, true);
            r->ctx.threads = ways[i].threads;
            for (int call = 0; call < ways[i].calls; call++) {
                pass(r, &b, other, ways[i].first[call], ways[i].count[call]);
            }
            assert_same(r, &b, other, whole, ways[i].how);
            totals_close(other);
        }
        totals_close(whole);
        batch_close(&b);
    }
}

START_TEST(bits_do_not_depend_on_the_way)
{
    rig_each_for(any_way, THREADS, &extents);
}
END_TEST

static void add_leaf(const batch *b, totals *t, int s, const float *leaf)
{
    for (int64_t i = 0; i < t->size[s]; i++) {
        t->sum[s].fixed[i] += tt_fixed_of(&b->point, leaf[i]);
    }
}

/* Leaf by leaf as floats that begin at zero; of embed_grad row by row, which is what arrives at gwpe
 * from one sequence, and of head_loss chunk by chunk. */
static void same_leaves(rig *r)
{
    for (int s = 0; s < SHAPES; s++) {
        batch b = batch_open(r, &shapes[s]);
        totals *got = totals_open(&b, true), *want = totals_open(&b, true);
        pass(r, &b, got, 0, B);
        for (int64_t l = 0; l < B; l++) {
            totals *leaf = totals_open(&b, false);
            pass(r, &b, leaf, l, 1);
            for (int i = GW; i <= GBIAS; i++) {
                add_leaf(&b, want, i, leaf->sum[i].sum);
            }
            add_leaf(&b, want, GWPE, leaf->sum[GWPE].sum);
            for (int64_t t = 0; t < b.T; t++) {
                const int64_t word = b.token[l * b.T + t];
                for (int64_t k = 0; k < b.K; k++) {
                    want->sum[GWTE].fixed[word * b.K + k] +=
                        tt_fixed_of(&b.point, leaf->sum[GWPE].sum[t * b.K + k]);
                }
            }
            totals_close(leaf);
            for (int64_t t = 0; t < b.T; t += TT_HEAD_DEPTH) {
                const int64_t rows = tt_min(TT_HEAD_DEPTH, b.T - t);
                leaf = totals_open(&b, false);
                head(r, &b, leaf, l * b.T + t, rows, rows);
                add_leaf(&b, want, GHEAD, leaf->sum[GHEAD].sum);
                tt_exact_merge(&want->loss, &leaf->loss);
                want->count += leaf->count;
                totals_close(leaf);
            }
        }
        assert_same(r, &b, got, want, "from the sum of its leaves");
        totals_close(got);
        totals_close(want);
        batch_close(&b);
    }
}

START_TEST(summands_are_the_leaves_of_floats)
{
    rig_each_for(same_leaves, THREADS, &extents);
}
END_TEST

/* One element of dy, of x or of dz is bad; want[]: how much of each sum is lost by it. */
static void spoil(rig *r, batch *b, void *array, int64_t element, double bad, const int64_t *want)
{
    for (int each = 0; each < 2; each++) { /* all at once, one by one */
        totals *t = totals_open(b, true);
        const double was = rig_get(r, array, element);
        rig_put(r, array, element, bad);
        for (int64_t l = 0; l < B; l += each ? 1 : B) {
            pass(r, b, t, l, each ? 1 : B);
        }
        rig_put(r, array, element, was);
        for (int s = 0; s < SUMS; s++) {
            ck_assert_msg(t->lost[s] == want[s],
                          "%s %s, T %lld, %g in %lld: %s lost %lld, not %lld", r->ops.isa,
                          tt_formats[r->ops.compute].name, (long long)b->T, bad, (long long)element,
                          sum_names[s], (long long)t->lost[s], (long long)want[s]);
        }
        totals_close(t);
    }
}

static void lost(rig *r)
{
    const double bad[] = {NAN, -INFINITY, 1e37};
    for (int s = 1; s < 4; s += 2) {
        batch b = batch_open(r, &shapes[s]);
        const tt_dropout drop = rig_dropout(0.2, samples);
        const int64_t T = b.T, N = b.N, K = b.K, V = b.V;
        int64_t rows[3] = {0, 3 * T, B * T - 1};
        for (int i = 0; i < 3; i++) { /* the first, an inner, the last: partial steps */
            int64_t row = rows[i], n = i == 0 ? 0 : i == 1 ? N / 2 : N - 1;
            int64_t k = i == 0 ? 0 : i == 1 ? K / 2 : K - 1;
            while (rig_keep(&drop, row / T, row % T * K + k) == 0) {
                k--; /* what dropout drops is not looked for */
            }
            for (size_t v = 0; v < sizeof bad / sizeof *bad; v++) {
                spoil(r, &b, b.dy, row * N + n, bad[v], (int64_t[SUMS]){[GW] = K, [GB] = 1});
                spoil(r, &b, b.dz, row * K + k, bad[v],
                      (int64_t[SUMS]){[GGAIN] = 1, [GBIAS] = 1, [GWTE] = 1, [GWPE] = 1});
            }
            b.target[row] = 1;
            spoil(r, &b, b.x, row * K + k, NAN,
                  (int64_t[SUMS]){[GW] = N, [GGAIN] = 1, [GHEAD] = (V - 3) * K + 3});
        }
        batch_close(&b);
    }
}

START_TEST(what_is_lost_is_counted)
{
    rig_each_for(lost, THREADS, &extents);
}
END_TEST

/* At the limit of losses times `scale` nothing is lost; a step of the format beyond it, one summand. */
static void limits_at(rig *r, float scale)
{
    enum { N = 5, K = 21, T = 7, V = 9 };
    const struct shape shape = {T, N, K, V};
    batch b = batch_open(r, &shape);
    b.point = tt_fixed_make(B, T, scale);
    const double epsilon = tt_formats[r->ops.compute].epsilon;
    const double leaf = (double)tt_fixed_limit(&b.point, T), one = (double)scale;
    memset(b.dy, 0, (size_t)(B * T * N) * rig_size(r));
    memset(b.dz, 0, (size_t)(B * T * K) * rig_size(r));
    for (int64_t k = 0; k < K; k++) {
        rig_put(r, b.x, (2 * T + 3) * K + k, k == K - 1 ? 1 : 0);
    }
    for (int sign = -1; sign <= 1; sign += 2) {
        const int64_t y = (2 * T + 3) * N + N - 1;
        spoil(r, &b, b.dy, y, sign * leaf, (int64_t[SUMS]){0});
        spoil(r, &b, b.dy, y, sign * leaf * (1 + epsilon), (int64_t[SUMS]){[GW] = 1, [GB] = 1});
        b.rstd[2 * T + 3] = 0;
        const int64_t z = (2 * T + 3) * K;
        const tt_dropout drop = rig_dropout(0.2, samples);
        int64_t k = K - 1;
        while (rig_keep(&drop, 2, 3 * K + k) == 0) {
            k--;
        }
        /* times 1.25 for what is kept: 4080 and 4100, of 4096 */
        spoil(r, &b, b.dz, z + k, sign * 3264 * one, (int64_t[SUMS]){0});
        spoil(r, &b, b.dz, z + k, sign * 3280 * one, (int64_t[SUMS]){[GWTE] = 1, [GWPE] = 1});
        spoil(r, &b, b.dz, z + k, sign * leaf, (int64_t[SUMS]){[GWTE] = 1, [GWPE] = 1});
        spoil(r, &b, b.dz, z + k, sign * leaf * (1 + epsilon),
              (int64_t[SUMS]){[GBIAS] = 1, [GWTE] = 1, [GWPE] = 1});
    }
    batch_close(&b);
}

static void limits(rig *r)
{
    limits_at(r, 1);
    limits_at(r, 0x1p-9f);
    if (tt_formats[r->ops.format].max > 0x1p36) { /* FP16 has no numbers of that size */
        limits_at(r, 0x1p20f);
    }
}

START_TEST(the_limit_is_the_limit)
{
    rig_each_for(limits, THREADS, &extents);
}
END_TEST

/* Rows of a leaf have the same bits in a batch, alone, and where another leaf stood; wide and deep
 * enough for every kernel inside a BLAS. */
static void moved(rig *r)
{
    static const int64_t lengths[] = {1, 7, 64, 100, 1030};
    for (int i = 0; i < 5; i++) {
        enum { LEAVES = 3 };
        const int64_t T = lengths[i], M = LEAVES * T, K = 131, N = T > 100 ? 35 : 140;
        void *x = rig_random(r, M * K, 1), *w = rig_random(r, N * K, 1);
        void *y = rig_acts(r, M * N), *alone = rig_acts(r, T * N), *turned = rig_acts(r, M * K);
        const size_t leaf_in = (size_t)(T * K) * rig_size(r),
                     leaf_out = (size_t)(T * N) * rig_size(r);
        void *y_turned = rig_acts(r, M * N);
        for (int64_t l = 0; l < LEAVES; l++) {
            memcpy(at(r, turned, (l + 1) % LEAVES * T * K), at(r, x, l * T * K), leaf_in);
        }
        for (int nt = 0; nt < 2; nt++) {
            tt_weight weight = rig_weight(r, w, nt ? N : K, nt ? K : N, nt != 0);
#define RUN(y, x, M)                                              \
    nt ? r->ops.gemm_nt(&r->ctx, y, x, &weight, NULL, M, N, K, T) \
       : r->ops.gemm_nn(&r->ctx, y, x, &weight, NULL, M, K, N, T)
            RUN(y, x, M);
            RUN(y_turned, turned, M);
            for (int64_t l = 0; l < LEAVES; l++) {
                RUN(alone, at(r, x, l * T * K), T);
                ck_assert_mem_eq(at(r, y, l * T * N), alone, leaf_out);
                ck_assert_mem_eq(at(r, y_turned, (l + 1) % LEAVES * T * N), alone, leaf_out);
            }
            rig_unpack(&weight);
        }
        free(x), free(w), free(y), free(alone), free(turned), free(y_turned);
    }
}

START_TEST(rows_do_not_depend_on_their_batch)
{
    rig_each_for(moved, THREADS, &extents);
}
END_TEST

static double distance(const double *want, const float *x, int64_t n)
{
    double error = 0, square = 0;
    for (int64_t i = 0; i < n; i++) {
        error += ((double)x[i] - want[i]) * ((double)x[i] - want[i]);
        square += want[i] * want[i];
    }
    return sqrt(error / square);
}

/* 512 leaves against their sum in FP64. The unit is that of 1024 tokens; leaves are as small as those of
 * a mean gradient of 2.5e-5 a token. */
static void accuracy(rig *r)
{
    enum { LEAVES = 512, T = 8, N = 24, K = 33, ALL = N * K };
    const tt_fixed point = tt_fixed_make(LEAVES, 1024, 1);
    void *dy = rig_random(r, LEAVES * T * N, 0.03), *x = rig_random(r, LEAVES * T * K, 0.3);
    float leaf[ALL], sum[ALL] = {0}, back[ALL];
    double want[ALL] = {0};
    int64_t fixed[ALL] = {0}, none = 0;
    for (int64_t l = 0; l < LEAVES; l++) {
        memset(leaf, 0, sizeof leaf);
        r->ops.gemm_tn(&r->ctx, GRAD(leaf), NULL, at(r, dy, l * T * N), at(r, x, l * T * K), T, N,
                       K, T);
        for (int i = 0; i < ALL; i++) {
            want[i] += (double)leaf[i];
        }
    }
    const tt_grad exact = {.fixed = fixed, .point = &point, .lost = &none};
    r->ops.gemm_tn(&r->ctx, GRAD(sum), NULL, dy, x, LEAVES * T, N, K, T);
    r->ops.gemm_tn(&r->ctx, &exact, NULL, dy, x, LEAVES * T, N, K, T);
    for (int i = 0; i < ALL; i++) {
        back[i] = tt_fixed_to(&point, fixed[i]);
    }
    const double of_floats = distance(want, sum, ALL), of_fixed = distance(want, back, ALL);
    printf("%s %s, %d leaves: relative error %.2g of FP32, %.2g of fixed point\n", r->ops.isa,
           tt_formats[r->ops.compute].name, LEAVES, of_floats, of_fixed);
    ck_assert_int_eq(none, 0);
    ck_assert(2 * of_fixed < of_floats);
    free(dy), free(x);
}

START_TEST(fixed_point_is_nearer_than_floats)
{
    rig_each_for(accuracy, THREADS, &extents);
}
END_TEST

/* Reading: sums of squares over any cut at multiples of 64; adamw as on the floats of the totals. */
static void readers(rig *r)
{
    enum { MOST = 64 * 37 + 29 };
    static const int64_t sizes[] = {1, 15, 16, 63, 64, 65, 1000, MOST};
    static const int64_t cuts[] = {64, 128, 64 * 7, 64 * 36};
    const tt_adamw update = {1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.1f, 0.05f, 0.5f};
    const tt_fixed point = tt_fixed_make(24, 1024, 1);
    for (int s = 0; s < 8; s++) {
        const int64_t n = sizes[s];
        float *g = rig_floats(r, n, 1), *start = rig_floats(r, 3 * n, 1);
        int64_t *q = rig_block((size_t)n * sizeof *q), none = 0;
        for (int64_t i = 0; i < n; i++) {
            q[i] = tt_fixed_of(&point, g[i]) * (i % 7 == 0 ? INT64_C(1) << 30 : 1);
            g[i] = tt_fixed_to(&point, q[i]);
            start[2 * n + i] *= start[2 * n + i];
        }
        const tt_grad fixed = {.fixed = q, .point = &point, .lost = &none};
        const double want = squares_of(&r->ctx, g, n);
        for (int c = 0; c < 4; c++) {
            tt_exact sum = {.pending = 0};
            r->ctx.threads = 1 + c % THREADS;
            for (int64_t i = n > 0 ? (n - 1) / cuts[c] * cuts[c] : 0; i >= 0; i -= cuts[c]) {
                const tt_grad part = tt_grad_from(&fixed, i);
                r->ops.sum_squares(&r->ctx, &sum, &part, tt_min(cuts[c], n - i));
            }
            ck_assert(tt_exact_value(&sum) == want);
        }
        float *state[2];
        void *w[2];
        for (int k = 0; k < 2; k++) {
            state[k] = rig_copy(start, (size_t)(3 * n) * sizeof *g);
            w[k] = rig_acts(r, n);
            r->ops.adamw(&r->ctx, FULL(state[k]), state[k] + n, state[k] + 2 * n, w[k],
                         k == 0 ? &fixed : GRAD(g), n, &update);
        }
        ck_assert_mem_eq(state[0], state[1], (size_t)(3 * n) * sizeof *g);
        ck_assert_mem_eq(w[0], w[1], (size_t)n * rig_size(r));
        free(g), free(start), free(q), free(state[0]), free(state[1]), free(w[0]), free(w[1]);
    }
}

START_TEST(totals_are_read_as_floats)
{
    rig_each_for(readers, THREADS, &extents);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("exact");
    TCase *tests = tcase_create("exact");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, bits_do_not_depend_on_the_way);
    tcase_add_test(tests, summands_are_the_leaves_of_floats);
    tcase_add_test(tests, what_is_lost_is_counted);
    tcase_add_test(tests, the_limit_is_the_limit);
    tcase_add_test(tests, rows_do_not_depend_on_their_batch);
    tcase_add_test(tests, fixed_point_is_nearer_than_floats);
    tcase_add_test(tests, totals_are_read_as_floats);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
