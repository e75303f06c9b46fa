/* cut.c: pieces, buckets and shards: arithmetic on ranges, no MPI.
 *
 * One rule, tt_cut, divides everything: a bucket over ranks and a large stage over buckets. It deals
 * out whole units of TT_CUT elements, the first `rest` pieces get one unit more, and only the piece
 * that holds the end is ragged.
 *
 * Owns the arrays inside tt_buckets and tt_shard. Next: reduce.c. */
#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/dist/cut.h"

/* Where piece r begins; r == R gives n. */
static int64_t cut_first(int64_t n, int r, int R)
{
    int64_t units = tt_ceil_div(n, TT_CUT);
    int64_t each = units / R, rest = units % R;
    return tt_min(n, (r * each + tt_min(r, rest)) * TT_CUT);
}

tt_range tt_cut(int64_t n, int r, int R)
{
    assert(n >= 0 && R >= 1 && r >= 0 && r < R);
    return (tt_range){cut_first(n, r, R), cut_first(n, r + 1, R)};
}

int64_t tt_bucket_elements(double megabytes, size_t bytes)
{
    return (int64_t)rint(megabytes * 1e6) / tt_count(bytes);
}

tt_code tt_buckets_make(tt_buckets *buckets, const int64_t *stage_end, int stages, int64_t limit,
                        tt_err *err)
{
    assert(limit >= TT_CUT && stages >= 0);
    limit -= limit % TT_CUT;
    *buckets = (tt_buckets){0};

    /* Without merging there would be this many; merging only lowers it. */
    int64_t most = 0;
    for (int s = 0; s < stages; s++) {
        int64_t length = stage_end[s] - (s > 0 ? stage_end[s - 1] : 0);
        assert(length >= 0);
        most += tt_ceil_div(length, limit);
    }
    buckets->bucket = tt_alloc(tt_int(most), sizeof *buckets->bucket, err);
    if (buckets->bucket == NULL) {
        return err->code;
    }

    bool open = false; /* the last bucket holds whole stages and may take another */
    for (int s = 0; s < stages; s++) {
        int64_t first = s > 0 ? stage_end[s - 1] : 0;
        int64_t length = stage_end[s] - first;
        if (length == 0) {
            continue;
        }
        tt_bucket *last = open ? &buckets->bucket[buckets->count - 1] : NULL;
        if (last != NULL && stage_end[s] - last->range.first <= limit) {
            last->range.end = stage_end[s]; /* last_stage stays: the lower one */
            continue;
        }
        int pieces = tt_int(tt_ceil_div(length, limit));
        for (int i = 0; i < pieces; i++) {
            tt_range piece = tt_cut(length, i, pieces); /* <= limit, as units / pieces <= limit */
            buckets->bucket[buckets->count++] =
                (tt_bucket){{first + piece.first, first + piece.end}, s};
        }
        open = pieces == 1;
    }
    assert(buckets->count <= most);
    return TT_OK;
}

void tt_buckets_free(tt_buckets *buckets)
{
    free(buckets->bucket);
    *buckets = (tt_buckets){0};
}

tt_code tt_shard_make(tt_shard *shard, const tt_buckets *buckets, bool pieces, int rank, int ranks,
                      tt_err *err)
{
    *shard = (tt_shard){.count = buckets->count};
    shard->range = tt_alloc(shard->count, sizeof *shard->range, err);
    if (shard->range != NULL) {
        shard->local = tt_alloc(shard->count, sizeof *shard->local, err);
    }
    if (shard->local == NULL) {
        tt_shard_free(shard);
        return err->code;
    }
    for (int i = 0; i < shard->count; i++) {
        tt_range bucket = buckets->bucket[i].range;
        tt_range piece = {0, bucket.end - bucket.first};
        if (pieces) {
            piece = tt_cut(piece.end, rank, ranks);
        }
        shard->range[i] = (tt_range){bucket.first + piece.first, bucket.first + piece.end};
        shard->local[i] = shard->elements;
        shard->elements += piece.end - piece.first;
    }
    return TT_OK;
}

int64_t tt_shard_before(const tt_shard *shard, int64_t flat)
{
    int64_t before = 0;
    for (int i = 0; i < shard->count && shard->range[i].first < flat; i++) {
        before += tt_min(flat, shard->range[i].end) - shard->range[i].first;
    }
    return before;
}

void tt_shard_free(tt_shard *shard)
{
    free(shard->range);
    free(shard->local);
    *shard = (tt_shard){0};
}
