/* spread.c: see spread.h. */
#include "dist/spread.h"

#include <stdlib.h>

#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"

static int64_t length(const tt_buckets *buckets, int b)
{
    return buckets->bucket[b].range.end - buckets->bucket[b].range.first;
}

/* Numbers the lengths; returns how many there are. first[] out: a bucket of each. */
static int number_lengths(const tt_buckets *buckets, int *like, int *first)
{
    int lengths = 0;
    for (int b = 0; b < buckets->count; b++) {
        int i = 0;
        while (i < lengths && length(buckets, first[i]) != length(buckets, b)) {
            i++;
        }
        if (i == lengths) {
            first[lengths++] = b;
        }
        like[b] = i;
    }
    return lengths;
}

static void fill(tt_spread *s, const tt_node *node, int64_t n, int like)
{
    int64_t at = (int64_t)like * s->stood * s->nodes;
    for (int i = 0; i < s->stood; i++) {
        for (int m = 0; m < s->nodes; m++, at++) {
            const int rank = tt_node_at(node, m, s->lane[i]);
            const tt_range piece = rank >= 0 ? tt_cut(n, rank, node->world_size) : (tt_range){0, 0};
            s->count[at] = tt_int(piece.end - piece.first);
            s->offset[at] = tt_int(piece.first);
            s->share[like] += piece.end - piece.first;
        }
    }
}

tt_code tt_spread_make(tt_spread *s, const tt_node *node, const tt_buckets *buckets, tt_err *err)
{
    tt_code rc = TT_OK;
    *s = (tt_spread){.nodes = node->count};
    int *first = tt_alloc(buckets->count, sizeof *first, err);
    s->like = tt_alloc(buckets->count, sizeof *s->like, err);
    s->lane = tt_alloc(node->lanes, sizeof *s->lane, err);
    if (!first || !s->like || !s->lane) {
        rc = err->code;
        goto out;
    }
    for (int l = 0; l < node->lanes; l++) {
        if (tt_node_stands(node, l)) {
            s->lane[s->stood++] = l;
        }
    }
    const int lengths = number_lengths(buckets, s->like, first);
    const int64_t entries = tt_mul(lengths, tt_mul(s->stood, s->nodes));
    s->count = tt_alloc(entries, sizeof *s->count, err);
    s->offset = tt_alloc(entries, sizeof *s->offset, err);
    s->share = tt_alloc(lengths, sizeof *s->share, err);
    if (!s->count || !s->offset || !s->share) {
        rc = err->code;
        goto out;
    }
    for (int i = 0; i < lengths; i++) {
        fill(s, node, length(buckets, first[i]), i);
    }
out:
    free(first);
    if (rc != TT_OK) {
        tt_spread_free(s);
    }
    return rc;
}

void tt_spread_free(tt_spread *s)
{
    free(s->lane);
    free(s->like);
    free(s->count);
    free(s->offset);
    free(s->share);
    *s = (tt_spread){.nodes = 0};
}
