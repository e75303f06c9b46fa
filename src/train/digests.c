/* digests.c: digests of every tensor of the state, each rank its cut. See digests.h. */
#include "tutti/train/digests.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/numerics/digest.h"

#include "train/train_impl.h"

enum { CHUNK = 1 << 15 }; /* elements that a thread digests at a time */

tt_code tt_digests_open(tt_digests *d, const tt_trainer *t, tt_err *err)
{
    tt_code rc = TT_OK;
    *d = (tt_digests){.weights = 0};
    TT_TRY(tt_state_rows(&d->rows, t, err));
    d->sum = tt_alloc(d->rows.rows, sizeof *d->sum, err);
    if (!d->sum) {
        rc = err->code;
        goto out;
    }
    /* A line is always as long as this one, but for the step: none will have to grow. */
    if (tt_digests_line(d, INT64_MAX)->failed) {
        rc = tt_fail(err, TT_EWORLD, "out of memory for a line of digests.jsonl");
    }
out:
    if (rc != TT_OK) {
        tt_digests_close(d);
    }
    return rc;
}

/* Elements at .. at + count - 1 of a piece, wherever they are. What cannot be had is not in the digest:
 * tt_digests_take finds out. */
static uint64_t digest_run(const tt_piece *piece, int64_t at, int64_t count)
{
    enum { SOME = 1 << 10 };
    float value[SOME];
    uint64_t sum = 0;
    tt_err err;
    if (piece->form.get == NULL) {
        return tt_digest32(piece->data + at, piece->first + at, count);
    }
    for (const int64_t end = at + count; at < end; at += SOME) {
        const int64_t some = tt_min(SOME, end - at);
        if (piece->form.get(piece->form.owner, piece->at + at, some, value, &err) == TT_OK) {
            sum += tt_digest32(value, piece->first + at, some);
        }
    }
    return sum;
}

/* Integers add up the same in any order. */
static uint64_t digest_of(const tt_piece *piece, int threads)
{
    uint64_t sum = 0;
#pragma omp parallel for num_threads(threads) schedule(dynamic) reduction(+ : sum) \
    if (piece->count > CHUNK)
    for (int64_t at = 0; at < piece->count; at += CHUNK) {
        sum += digest_run(piece, at, tt_min(CHUNK, piece->count - at));
    }
    return sum;
}

tt_code tt_digests_take(tt_digests *d, const tt_trainer *t, tt_err *err)
{
    tt_code rc = TT_OK;
    for (int i = 0; i < d->rows.rows; i++) {
        const tt_tensor_row *row = &d->rows.row[i];
        d->sum[i] = 0;
        tt_beat(t->world, "summing digests");
        for (int p = 0; p < row->pieces; p++) {
            d->sum[i] += digest_of(&row->piece[p], t->ctx.threads);
        }
    }
    if (t->print.config.memory.optimizer_file[0] != '\0') {
        TT_TRY(tt_agree(t->world, tt_optimizer_check(&t->optimizer, err), err));
    }
    TT_TRY(tt_sum_u64(t->world, d->sum, d->rows.rows, err));
    d->weights = tt_digest_group(d->sum, t->print.params.count); /* rows of params come first */
out:
    return rc;
}

const tt_text *tt_digests_line(tt_digests *d, int64_t step)
{
    d->line.length = 0;
    tt_text_add(&d->line, "{\"step\": %lld, \"digest\": \"%016" PRIx64 "\", \"tensors\": {",
                (long long)step, d->weights);
    for (int i = 0; i < d->rows.rows; i++) {
        tt_text_add(&d->line, "%s\"%s\": \"%016" PRIx64 "\"", i > 0 ? ", " : "",
                    d->rows.row[i].name, d->sum[i]);
    }
    tt_text_add(&d->line, "}}\n");
    return &d->line;
}

void tt_digests_close(tt_digests *d)
{
    tt_rows_free(&d->rows);
    free(d->sum);
    tt_text_free(&d->line);
    *d = (tt_digests){.weights = 0};
}
