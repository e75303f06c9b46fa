/* train_test.h: what the tests of this layer share: a folder with tiny token files, a tiny model's
 * configuration, trainers that run it, and comparisons.
 *
 * In a multi-rank test rank 0 makes the folder and its files, and all know its name. `alone` is a
 * world of one rank: a trainer in it does by itself what a set of ranks does together, so every test
 * has its yardstick in the same process. Its run folders are the rank's own. */
#ifndef TRAIN_TEST_H
#define TRAIN_TEST_H

#include <ftw.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tutti/base/file.h"
#include "tutti/base/narrow.h"
#include "tutti/data/tokens.h"
#include "tutti/train/evaluate.h"
#include "tutti/train/infer.h"
#include "tutti/train/masters.h"
#include "tutti/train/memory.h"
#include "tutti/train/metrics.h"
#include "tutti/train/plan.h"
#include "tutti/train/state.h"
#include "tutti/train/step.h"
#include "tutti/train/trainer.h"

#include "sums.h"
#include "tt_test.h"

enum { PATH_ROOM = 512, CONTEXT = 8 };

static char test_folder[256];      /* made by open_folder, removed by close_folder */
static tt_log quiet = {.rank = 1}; /* says warnings only */
__attribute__((unused)) static tt_world alone = {
    .rank = 0, .size = 1, .local_size = 1, .mask_size = 1};

static inline int my_rank(void)
{
#ifdef TT_MPI_TEST
    return tt_test_world.rank;
#else
    return 0;
#endif
}

/* A condition that holds on every rank. */
static inline bool everywhere(bool ok)
{
#ifdef TT_MPI_TEST
    return tt_all(ok);
#else
    return ok;
#endif
}

#define must(call)                                               \
    do {                                                         \
        tt_err err_ = {TT_OK, ""};                               \
        bool ok_ = (call) == TT_OK;                              \
        ck_assert_msg(everywhere(ok_), #call ": %s", err_.text); \
    } while (0)

/* --- files ------------------------------------------------------------------------------------ */

/* Path in the test's folder, in one of eight static buffers that take turns. */
__attribute__((format(printf, 1, 2))) static inline char *in_folder(const char *fmt, ...)
{
    static char path[8][PATH_ROOM];
    static int turn;
    char *out = path[turn++ % 8];
    int length = snprintf(out, PATH_ROOM, "%s/", test_folder);
    va_list args;
    va_start(args, fmt);
    vsnprintf(out + length, (size_t)(PATH_ROOM - length), fmt, args);
    va_end(args);
    return out;
}

static inline void write_text(const char *path, const char *text, size_t length)
{
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(text, 1, length, file), length);
    ck_assert_int_eq(fclose(file), 0);
}

/* Token file `name` of documents with the given lengths in bytes (0 ends the list), a part of them
 * held out. The text is a fixed sequence of small letters. */
static inline void build_tokens(const char *name, const int *length, double valid)
{
    char text[512], out[PATH_ROOM], input[PATH_ROOM];
    tt_err err = {TT_OK, ""};
    unsigned state = 12345;
    snprintf(input, sizeof input, "%s", in_folder("corpus-%s", name));
    snprintf(out, sizeof out, "%s", in_folder("%s", name));
    ck_assert_int_eq(mkdir(input, 0777), 0);
    for (int d = 0; length[d] > 0; d++) {
        ck_assert_int_le(length[d], (int)sizeof text);
        for (int i = 0; i < length[d]; i++) {
            state = state * 1103515245u + 12345u;
            text[i] = (char)('a' + (state >> 16) % 7);
        }
        write_text(in_folder("corpus-%s/%03d.txt", name, d), text, (size_t)length[d]);
    }
    char *inputs[] = {input};
    tt_tokens_build build = {.out = out,
                             .tokenizer = "bytes",
                             .valid_fraction = valid,
                             .seed = 1,
                             .inputs = 1,
                             .input = inputs};
    tt_tokens_summary summary;
    ck_assert_msg(tt_tokens_build_file(&build, &summary, &err) == TT_OK, "%s", err.text);
}

/* data.h5: documents of very different lengths and a held-out part. one.h5: exactly one window. */
static inline void open_folder(void)
{
    static const int mixed[] = {3,  40, 1, 9, 17, 5,  2,  30, 8,  7, 1, 64, 4,
                                11, 6,  2, 5, 90, 21, 13, 50, 10, 3, 8, 33, 0};
    static const int one[] = {CONTEXT, 0};
    if (my_rank() == 0) {
        const char *base = getenv("TMPDIR");
        snprintf(test_folder, sizeof test_folder, "%s/tutti-train-XXXXXX", base ? base : "/tmp");
        ck_assert_ptr_nonnull(mkdtemp(test_folder));
        build_tokens("data.h5", mixed, 0.3);
        build_tokens("one.h5", one, 0);
    }
#ifdef TT_MPI_TEST
    MPI_Bcast(test_folder, sizeof test_folder, MPI_CHAR, 0, MPI_COMM_WORLD);
#endif
}

/* data.h5 again, as damaged.h5, in which one id of the window of a sample is no token. The caller
 * closes it. */
static inline tt_tokens *spoilt_copy(const tt_sampler *sampler, int64_t sample, bool valid)
{
    tt_err err = {TT_OK, ""};
    tt_text bytes = {0};
    tt_tokens *out = NULL;
    int32_t token[CONTEXT];
    uint16_t id[CONTEXT];
    const int64_t first = tt_sampler_element(sampler, sample) * CONTEXT;
    ck_assert_int_eq(tt_tokens_read(sampler->tokens, first, CONTEXT, token, &err), TT_OK);
    for (int i = 0; i < CONTEXT; i++) {
        id[i] = (uint16_t)token[i];
    }
    ck_assert_int_eq(tt_read_file(in_folder("data.h5"), 1 << 24, &bytes, &err), TT_OK);
    char *at = memmem(bytes.data, bytes.length, id, sizeof id);
    ck_assert_ptr_nonnull(at);
    at[2 * (CONTEXT / 2) + 1] = 0x7f; /* the upper byte of an id in its middle */
    write_text(in_folder("damaged.h5"), bytes.data, bytes.length);
    tt_text_free(&bytes);
    ck_assert_int_eq(tt_tokens_open(&out, in_folder("damaged.h5"), valid, &err), TT_OK);
    return out;
}

static inline int remove_entry(const char *path, const struct stat *s, int kind, struct FTW *ftw)
{
    (void)s, (void)kind, (void)ftw;
    return remove(path);
}

static inline void close_folder(void)
{
#ifdef TT_MPI_TEST
    MPI_Barrier(MPI_COMM_WORLD);
#endif
    if (my_rank() == 0) {
        ck_assert_int_eq(nftw(test_folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
    }
}

/* --- configurations and trainers -------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static inline void set(tt_config *config, const char *key,
                                                             const char *fmt, ...)
{
    char value[PATH_ROOM];
    tt_err err = {TT_OK, ""};
    va_list args;
    va_start(args, fmt);
    vsnprintf(value, sizeof value, fmt, args);
    va_end(args);
    ck_assert_msg(tt_config_set(config, "test", key, value, &err) == TT_OK, "%s", err.text);
}

/* A model of odd sizes in FP32 on data.h5. eps: see configs/equivalence.yaml: the gradient of a key's
 * bias is rounding noise, which a tiny eps makes into whole steps. */
static inline tt_config tiny_config(const char *run)
{
    tt_config config;
    tt_config_preset(&config);
    set(&config, "model.layers", "2");
    set(&config, "model.heads", "2");
    set(&config, "model.channels", "10");
    set(&config, "model.ffn", "21");
    set(&config, "model.context", "%d", CONTEXT);
    set(&config, "data.train", "%s", in_folder("data.h5"));
    set(&config, "batch.micro", "1");
    set(&config, "optim.lr", "1e-3");
    set(&config, "optim.eps", "1e-5");
    set(&config, "precision.compute", "fp32");
    set(&config, "dist.bucket_mb", "0.007"); /* some stages divided, some merged */
    set(&config, "run.dir", "%s", in_folder("%s", run));
    set(&config, "run.steps", "6");
    set(&config, "run.threads", "1");
    return config;
}

/* The same for a world of one on each rank: as many sequences, a folder of the rank's own. */
static inline tt_config alone_config(const tt_config *config, int64_t sequences)
{
    tt_config own = *config;
    set(&own, "batch.sequences", "%lld", (long long)sequences);
    set(&own, "batch.micro", "%lld", (long long)sequences);
    set(&own, "batch.accumulate", "1");
    set(&own, "run.dir", "%s-alone-%d", config->run.dir, my_rank());
    return own;
}

/* The checkpoint of that step in the run.dir of another configuration too: a folder is one job's. */
static inline void lend(const tt_config *from, const tt_config *to, int step)
{
    tt_err err;
    char path[2][TT_PATH + 32];
    snprintf(path[0], sizeof path[0], "%s/step-%08d.h5", from->run.dir, step);
    snprintf(path[1], sizeof path[1], "%s/step-%08d.h5", to->run.dir, step);
    ck_assert_int_eq(tt_make_folders(to->run.dir, &err), TT_OK);
    ck_assert_int_eq(link(path[0], path[1]), 0);
}

static inline void open_trainer(tt_trainer *trainer, const tt_config *config, tt_world *world)
{
    tt_err err = {TT_OK, ""};
    tt_code rc = tt_trainer_open(trainer, config, world, &quiet, &err);
    ck_assert_msg(everywhere(rc == TT_OK), "%s", err.text);
}

static inline void step_once(tt_trainer *trainer, tt_record *record)
{
    tt_err err = {TT_OK, ""};
    tt_request request = {.code = TT_OK};
    tt_code rc = tt_step(trainer, &request, record, &err);
    if (rc == TT_OK) { /* so that weights are those of all, not on their way */
        rc = tt_tutti_settle(&trainer->tutti, &err);
    }
    ck_assert_msg(everywhere(rc == TT_OK), "%s", err.text);
}

/* --- interrupted runs --------------------------------------------------------------------------- */

enum { FIRST = 3 }; /* steps before the interruption */

static inline tt_config resume_config(const char *run)
{
    tt_config config = tiny_config(run);
    set(&config, "model.layers", "1"); /* fewer tensors: saving makes most of the time here */
    set(&config, "batch.sequences", "12");
    set(&config, "model.dropout", "0.1");
    set(&config, "data.mode", "documents");
    set(&config, "optim.warmup", "2");
    return config;
}

static inline void steps(tt_trainer *t, int count)
{
    tt_record record;
    for (int i = 0; i < count; i++) {
        step_once(t, &record);
    }
}

/* Opens, makes some steps, saves, closes. */
static inline void first_part(const tt_config *config, tt_world *world)
{
    tt_trainer t;
    open_trainer(&t, config, world);
    steps(&t, FIRST);
    must(tt_saver_save(&t, NULL, true, true, &err_));
    tt_trainer_close(&t);
}

static inline bool exists(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0;
}

/* Dumps the gradient times `scale` to run.dump_gradients and reads it back, flat; the caller frees. */
static inline float *dumped_gradient(tt_trainer *t, double scale)
{
    static const char *const group[] = {"grads"};
    const tt_params *params = &t->print.params;
    float *mean = calloc((size_t)params->total, sizeof *mean);
    ck_assert_ptr_nonnull(mean);
    tt_range range = {0, params->total};
    int64_t local = 0;
    const tt_shard all = {.count = 1, .range = &range, .local = &local, .elements = range.end};
    tt_rows rows;
    must(tt_state_dump_gradients(t, scale, &err_));
    must(tt_rows_make(&rows, params, &all, &local, 1, group, &mean, NULL, &err_));
    tt_state state = {.tensors = rows.rows, .tensor = rows.row};
    must(tt_ckpt_load(t->world, t->print.config.run.dump_gradients, &state, false, &err_));
    tt_rows_free(&rows);
    return mean;
}

/* --- comparisons ------------------------------------------------------------------------------ */

static inline double apart(double a, double b)
{
    double size = fmax(fabs(a), fabs(b));
    return size > 0 ? fabs(a - b) / size : 0;
}

/* ||a * scale_a - b * scale_b|| / ||b * scale_b||; NaN anywhere gives NaN, which is below nothing. */
static inline double l2_apart(const float *a, double scale_a, const float *b, double scale_b,
                              int64_t n)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = a[i] * scale_a, y = b[i] * scale_b;
        difference += (x - y) * (x - y);
        size += y * y;
    }
    return size > 0 ? sqrt(difference / size) : sqrt(difference);
}

/* The act weights as FP32; the caller frees. */
static inline float *weights_of(tt_trainer *t)
{
    float *out = malloc(sizeof *out * (size_t)t->print.params.total);
    ck_assert_ptr_nonnull(out);
    t->ctx.ops->from_act(&t->ctx, out, t->weights, t->print.params.total);
    return out;
}

/* Of the whole vector what each rank's piece holds, as integers that are equal when the elements are:
 * the sums of the last step (of floats: their bits), or the weights. The caller frees. Collective over
 * the trainer's world. */
static inline int64_t *collected(const tt_trainer *t, bool weights)
{
    const tt_shard *cut = &t->print.cut;
    const int64_t n = t->print.params.total;
    int64_t *out = calloc((size_t)n, sizeof *out);
    ck_assert_ptr_nonnull(out);
    for (int b = 0; b < cut->count; b++) {
        for (int64_t e = cut->range[b].first; e < cut->range[b].end; e++) {
            const int64_t local = cut->local[b] + (e - cut->range[b].first);
            const tt_grad whole = t->print.slices ? t->pieces : t->gradient;
            const int64_t at = t->print.slices ? local : e;
            const size_t size = t->print.act_bytes;
            if (weights) {
                const unsigned char *w = t->own_weights != NULL ? t->own_weights : t->weights;
                memcpy(&out[e], w + tt_bytes(t->own_weights != NULL ? local : e, size), size);
            } else if (whole.fixed != NULL) {
                out[e] = whole.fixed[at];
            } else {
                memcpy(&out[e], &whole.sum[at], sizeof(float));
            }
        }
    }
    tt_err err;
    ck_assert(tt_sum_i64(t->world, out, tt_int(n), &err) == TT_OK);
    return out;
}

static inline float float_at(const int64_t *collected, int64_t i)
{
    float value;
    memcpy(&value, &collected[i], sizeof value);
    return value;
}

static inline bool same_collected(const tt_trainer *a, const tt_trainer *b, bool weights)
{
    int64_t *x = collected(a, weights), *y = collected(b, weights);
    const bool same = memcmp(x, y, tt_bytes(a->print.params.total, sizeof *x)) == 0;
    free(x);
    free(y);
    return same;
}

/* Are two arrays of two trainers bit for bit the same where both hold elements? The trainers share
 * their buckets; their ZeRO stages may differ. *met, when not NULL, counts the elements compared. */
static inline bool same_shards(const tt_trainer *a, const float *of_a, const tt_trainer *b,
                               const float *of_b, int64_t *met)
{
    const tt_shard *x = &a->print.shard, *y = &b->print.shard;
    bool same = x->count == y->count;
    int64_t count = 0;
    for (int i = 0; i < x->count && same; i++) {
        int64_t first = tt_max(x->range[i].first, y->range[i].first);
        int64_t n = tt_min(x->range[i].end, y->range[i].end) - first;
        if (n > 0) {
            count += n;
            same = memcmp(of_a + x->local[i] + (first - x->range[i].first),
                          of_b + y->local[i] + (first - y->range[i].first),
                          sizeof(float) * (size_t)n) == 0;
        }
    }
    if (met) {
        *met = count;
    }
    return same;
}

/* The masters of the shard as FP32, flat; 0 elsewhere. The caller frees. */
static inline float *masters_of(const tt_trainer *t)
{
    const int64_t n = t->print.params.total;
    float *out = calloc((size_t)n, sizeof *out);
    ck_assert_ptr_nonnull(out);
    tt_masters_get(t, 0, n, out);
    return out;
}

/* Are the masters the same bits where both hold them? */
static inline bool same_masters(const tt_trainer *a, const tt_trainer *b)
{
    const tt_shard *x = &a->print.shard, *y = &b->print.shard;
    float *of_a = masters_of(a), *of_b = masters_of(b);
    bool same = true;
    for (int i = 0; i < x->count; i++) {
        for (int j = 0; j < y->count; j++) {
            const int64_t first = tt_max(x->range[i].first, y->range[j].first);
            const int64_t n = tt_min(x->range[i].end, y->range[j].end) - first;
            same = same &&
                   (n <= 0 || memcmp(of_a + first, of_b + first, sizeof(float) * (size_t)n) == 0);
        }
    }
    free(of_a);
    free(of_b);
    return same;
}

static inline bool same_progress(const tt_trainer *a, const tt_trainer *b)
{
    return memcmp(&a->progress, &b->progress, sizeof a->progress) == 0;
}

static inline bool same_weights(const tt_trainer *a, const tt_trainer *b)
{
    if (a->print.rotates || b->print.rotates) {
        return same_collected(a, b, true);
    }
    return a->print.params.total == b->print.params.total &&
           memcmp(a->weights, b->weights, tt_bytes(a->print.params.total, a->print.act_bytes)) == 0;
}

/* Every component took what was planned of it. */
static inline void check_memory(const tt_trainer *t)
{
    for (int c = 0; c < TT_MEM_COMPONENTS; c++) {
        const size_t used = t->arena[c].used + t->window[c].used;
        const size_t planned = t->print.plan.own[c] + t->print.plan.once[c];
        ck_assert_msg(everywhere(used == planned), "%s: %zu of %zu", tt_component_names[c], used,
                      planned);
    }
}

/* The step's calls and bytes are the plan's. */
static inline void check_wire(const tt_trainer *t, const tt_record *record)
{
    const tt_plan *plan = &t->print.plan;
    ck_assert_msg(everywhere(record->comm_calls == plan->wire_calls), "%lld calls, planned %lld",
                  (long long)record->comm_calls, (long long)plan->wire_calls);
    ck_assert_msg(everywhere(record->comm_bytes == plan->wire_bytes), "%lld bytes, planned %lld",
                  (long long)record->comm_bytes, (long long)plan->wire_bytes);
}

/* Everything that influences the next step. Collective over the trainers' worlds. */
static inline bool same_state(const tt_trainer *a, const tt_trainer *b)
{
    return same_weights(a, b) && same_progress(a, b) && same_masters(a, b) &&
           same_shards(a, a->optimizer.all.m, b, b->optimizer.all.m, NULL) &&
           same_shards(a, a->optimizer.all.v, b, b->optimizer.all.v, NULL);
}

#endif
