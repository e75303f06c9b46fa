/* verify.c: do all ranks hold the same weights? See verify.h.
 *
 * Each rank sums a digest of its weights, bucket by bucket, and one small reduction tells whether all
 * are equal: min(d) and min(~d) = ~max(d) are each other's complement exactly then. Only when they are
 * not is more sent, to find the bucket, the parameter and the ranks; every rank takes the same turns,
 * because each follows from numbers that were just made equal on all.
 *
 * Owns nothing. Reads weights and buckets; next: state.c, which saves what has been found equal. */
#include "tutti/train/verify.h"

#include <stdlib.h>

#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/base/text.h"
#include "tutti/dist/watch.h"
#include "tutti/numerics/digest.h"

#include "train/train_impl.h"

enum { CHUNK = 1 << 16, NAMED = 8 }; /* words that a thread takes at a time; ranks that are named */

/* The weights that this rank holds and every other rank holds too, within bucket number i. Ranks that
 * share memory hold the same ones; they are compared with those of other nodes. */
static tt_range held(const tt_trainer *t, int i)
{
    return t->print.buckets.bucket[i].range;
}

/* Digest of a range of the weights; act elements of any width are taken as 4-byte words. */
static uint64_t digest_of(const tt_trainer *t, tt_range range)
{
    const size_t size = t->print.act_bytes;
    const unsigned char *data = tt_act_at(t->weights, range.first, size);
    const int64_t bytes = tt_count(tt_bytes(range.end - range.first, size)), words = bytes / 4;
    uint64_t sum = 0;
#pragma omp parallel for num_threads(t->ctx.threads) reduction(+ : sum) if (words > CHUNK)
    for (int64_t at = 0; at < words; at += CHUNK) {
        sum += tt_digest32(data + 4 * at, at, tt_min(CHUNK, words - at));
    }
    return sum + tt_digest_bytes(data + 4 * words, bytes - 4 * words);
}

/* range[2 n] holds d and ~d of n digests: *first is the first that is not the same on all ranks, or n.
 * Collective. */
static tt_code first_unequal(tt_world *world, uint64_t *range, int n, int *first, tt_err *err)
{
    tt_code rc = TT_OK;
    TT_TRY(tt_min_u64(world, range, 2 * n, err));
    for (*first = 0; *first < n && range[2 * *first] == ~range[2 * *first + 1];) {
        ++*first;
    }
out:
    return rc;
}

static void put(uint64_t *range, int i, uint64_t digest)
{
    range[2 * i] = digest;
    range[2 * i + 1] = ~digest;
}

/* What parameter number p has in the range; empty: nothing. */
static tt_range part_of(const tt_params *params, int p, tt_range range)
{
    const tt_param *param = &params->param[p];
    const int64_t first = tt_max(range.first, param->offset);
    const int64_t end = tt_min(range.end, param->offset + param->count);
    return (tt_range){first, tt_max(first, end)};
}

/* The digest that most ranks have, or -1: the index of a rank that has it. */
static int majority(const uint64_t *digest, int ranks)
{
    for (int r = 0; r < ranks; r++) {
        int same = 0;
        for (int other = 0; other < ranks; other++) {
            same += digest[other] == digest[r];
        }
        if (2 * same > ranks) {
            return r;
        }
    }
    return -1;
}

/* "rank 1", "ranks 1, 3 and 5": those that differ from the majority; without one, "ranks 0 and 1 from
 * each other". */
static void add_ranks(const uint64_t *digest, int ranks, tt_text *out)
{
    const int right = majority(digest, ranks);
    int odd = 0, named = 0;
    for (int r = 0; r < ranks; r++) {
        odd += right < 0 || digest[r] != digest[right];
    }
    tt_text_add(out, odd == 1 ? "rank" : "ranks");
    for (int r = 0; r < ranks && named < NAMED; r++) {
        if (right < 0 || digest[r] != digest[right]) {
            tt_text_add(out, "%s %d", named == 0 ? "" : named == odd - 1 ? " and" : ",", r);
            named++;
        }
    }
    if (odd > named) {
        tt_text_add(out, " and %d more", odd - named);
    }
    tt_text_add(out, right < 0 ? " from each other" : " from the others");
}

/* Fills err with the sentence. Local. */
static tt_code say(const tt_trainer *t, int bucket, int param, const uint64_t *digest, tt_err *err)
{
    const tt_params *params = &t->print.params;
    const tt_range range = held(t, bucket);
    tt_text ranks = {0};
    int first = params->count, last = 0;
    for (int p = 0; p < params->count; p++) {
        const tt_range part = part_of(params, p, range);
        if (part.end > part.first) {
            first = p < first ? p : first;
            last = p;
        }
    }
    add_ranks(digest, t->world->size, &ranks);
    tt_fail(
        err, TT_EWORLD,
        "step %lld: weights differ between ranks: %s, first in bucket %d of %d (%s to %s), there "
        "in %s; not saved, %s",
        (long long)t->progress.step, ranks.failed ? "out of memory to say which" : ranks.data,
        bucket + 1, t->print.buckets.count, params->param[first].name, params->param[last].name,
        params->param[param].name, tt_state_kept(t));
    tt_text_free(&ranks);
    return TT_EWORLD;
}

/* They differ: where first, and on which ranks. Collective. */
static tt_code find(tt_trainer *t, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_params *params = &t->print.params;
    const int buckets = t->print.buckets.count, ranks = t->world->size;
    const int64_t most = tt_max(buckets, params->count);
    int bucket, param;
    uint64_t *range = tt_alloc(2 * most + ranks, sizeof *range, err), *digest;
    TT_TRY(tt_agree(t->world, range != NULL ? TT_OK : err->code, err));
    for (int i = 0; i < buckets; i++) {
        put(range, i, digest_of(t, held(t, i)));
    }
    TT_TRY(first_unequal(t->world, range, buckets, &bucket, err));
    if (bucket == buckets) {
        rc = tt_fail(
            err, TT_EWORLD,
            "step %lld: the weights of a rank changed while they were compared; not saved, %s",
            (long long)t->progress.step, tt_state_kept(t));
        goto out;
    }
    for (int p = 0; p < params->count; p++) {
        put(range, p, digest_of(t, part_of(params, p, held(t, bucket))));
    }
    TT_TRY(first_unequal(t->world, range, params->count, &param, err));
    digest = range + 2 * most;
    digest[t->world->rank] = digest_of(t, held(t, bucket));
    TT_TRY(
        tt_sum_u64(t->world, digest, ranks, err)); /* of zeros and the one that each has put in */
    rc = say(t, bucket, param < params->count ? param : 0, digest, err);
out:
    free(range);
    return rc;
}

tt_code tt_verify(tt_trainer *t, tt_err *err)
{
    tt_code rc = TT_OK;
    uint64_t range[2], sum = 0;
    int first;
    if (t->world->size == 1 || t->print.rotates) { /* in ZeRO 3 there is one of each */
        goto out;
    }
    TT_TRY(tt_tutti_settle(&t->tutti, err)); /* what is on its way has come */
    tt_beat(t->world, "comparing the weights of ranks");
    for (int i = 0; i < t->print.buckets.count; i++) {
        const uint64_t one = digest_of(t, held(t, i));
        sum += tt_digest32(&one, 2 * (int64_t)i, 2);
        tt_beat(t->world, NULL);
    }
    put(range, 0, sum);
    TT_TRY(first_unequal(t->world, range, 1, &first, err));
    if (first == 0) {
        rc = find(t, err);
    }
out:
    return rc;
}
