/* batch.c: the micro-batch that a rank plays.
 *
 * Invariant: row b depends on its global sample number alone, so a step holds the same sequences
 * however it is split. Every token is a valid id; target is -1 exactly where nothing is predicted.
 *
 * Whoever made the batch owns its memory. Reads data/tokens.h through a sampler, writes tt_batch;
 * next: model/model.h. */
#include <assert.h>
#include <string.h>

#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/data/batch.h"

/* Each array starts on a boundary of TT_ALIGN. */
static size_t room(int64_t count, size_t size)
{
    return tt_size(tt_round_up(tt_count(tt_bytes(count, size)), TT_ALIGN));
}

size_t tt_batch_bytes(int64_t B, int64_t T)
{
    int64_t BT = tt_mul(B, T);
    return room(B, sizeof(int64_t)) + 2 * room(BT, sizeof(int32_t)) + room(T + 1, sizeof(int32_t));
}

void tt_batch_place(tt_batch *batch, int64_t B, int64_t T, void *memory)
{
    unsigned char *next = memory;
    int64_t BT = tt_mul(B, T);
    batch->B = B;
    batch->T = T;
    batch->sample = (int64_t *)(void *)next;
    next += room(B, sizeof(int64_t));
    batch->token = (int32_t *)(void *)next;
    next += room(BT, sizeof(int32_t));
    batch->target = (int32_t *)(void *)next;
    next += room(BT, sizeof(int32_t));
    batch->scratch = (int32_t *)(void *)next;
}

/* Row b from its `length` first ids in scratch: x_t = d_t, y_t = d_{t+1}, masked past the end. */
static void lay_row(tt_batch *batch, int64_t b, int64_t length, int32_t end)
{
    int64_t T = batch->T;
    const int32_t *d = batch->scratch; /* [length], length <= T+1 */
    int32_t *x = batch->token + b * T, *y = batch->target + b * T;
    int64_t given = tt_min(length, T), predicted = tt_max(length - 1, 0);
    memcpy(x, d, tt_bytes(given, sizeof *x));
    memcpy(y, d + (predicted > 0), tt_bytes(predicted, sizeof *y));
    for (int64_t t = given; t < T; t++) {
        x[t] = end;
    }
    for (int64_t t = predicted; t < T; t++) {
        y[t] = -1;
    }
}

static tt_code fill_row(tt_batch *batch, tt_sampler *sampler, int64_t b, int64_t global_sample,
                        tt_err *err)
{
    int64_t T = batch->T, element = tt_sampler_element(sampler, global_sample);
    int64_t first = element * T, end = first + T + 1; /* stream: windows share a border token */
    if (sampler->documents) {
        tt_tokens_document(sampler->tokens, element, &first, &end);
        end = tt_min(end, first + T + 1);
    }
    tt_code rc = tt_tokens_read(sampler->tokens, first, end - first, batch->scratch, err);
    if (rc == TT_OK) {
        lay_row(batch, b, end - first, sampler->end);
    }
    return rc;
}

tt_code tt_batch_fill(tt_batch *batch, tt_sampler *sampler, const tt_split *split, int64_t step,
                      int64_t k, int rank, tt_err *err)
{
    assert(batch->B == split->micro && step >= 0 && k >= 0 && k < split->accumulate);
    assert(rank >= 0 && rank < split->ranks);
    int64_t first = tt_mul(step, split->sequences) + (k * split->ranks + rank) * split->micro;
    return tt_batch_fill_range(batch, sampler, first, first + split->micro, err);
}

tt_code tt_batch_fill_range(tt_batch *batch, tt_sampler *sampler, int64_t first, int64_t end,
                            tt_err *err)
{
    assert(batch->T == sampler->context && first >= 0);
    tt_code rc = TT_OK;
    for (int64_t b = 0; b < batch->B; b++) {
        batch->sample[b] = first + b;
        if (first + b < end) {
            TT_TRY(fill_row(batch, sampler, b, first + b, err));
        } else {
            lay_row(batch, b, 0, sampler->end);
        }
    }
out:
    return rc;
}
