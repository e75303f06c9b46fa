/* network.c: alpha, beta and gamma of collectives. See network.h, which has the formulas.
 *
 * Owns nothing, reads nothing but its arguments. Next: forecast.c. */
#include "tutti/train/network.h"

#include <math.h>
#include <stddef.h>

const char *const tt_way_names[] = {"within the node", "recursive doubling",
                                    "recursive halving and doubling", "ring"};

/* Bytes above which libraries scatter and gather by a ring. */
static const double long_vector = 524288;

/* What the formulas are written in. */
typedef struct terms {
    double nodes;    /* M */
    double members;  /* p of a ring: all ranks, or those of a lane */
    double rounds;   /* of halving or doubling that leave the node: log2 M */
    bool folds;      /* M is no power of 2 */
    double together; /* whole vectors that cross a link at once in doubling */
    double added;    /* bytes that a rank adds up, of one of the vector, where it is cut */
    double doubled;  /* the same in doubling, where it is not */
} terms;

static terms terms_of(const tt_network *w)
{
    const double R = w->ranks, N = fmin(w->node_ranks, w->ranks), M = tt_network_nodes(w);
    const double rounds = ceil(log2(M));
    terms t = {.nodes = M, .rounds = rounds, .folds = exp2(rounds) > M};
    if (w->shared) {
        const double home = (N - 1) / N; /* its N-th of the vector, from N - 1 others */
        t.members = M;
        t.together = 1;
        t.added = home + (M - 1) / M / N;
        t.doubled = home + rounds / N;
    } else {
        t.members = R;
        t.together = N;
        t.added = (R - 1) / R;
        t.doubled = ceil(log2(R));
    }
    return t;
}

int tt_network_nodes(const tt_network *w)
{
    return w->node_ranks >= w->ranks ? 1 : (w->ranks + w->node_ranks - 1) / w->node_ranks;
}

/* The way there, or the way back: seconds of the wire alone. */
static double half_ring(const tt_network *w, const terms *t, double bytes)
{
    return (t->members - 1) * w->latency + (t->members - 1) / t->members * bytes / w->link;
}

static double half_rounds(const tt_network *w, const terms *t, double bytes)
{
    const double fold = t->folds ? w->latency + bytes / w->link : 0;
    return t->rounds * w->latency + (t->nodes - 1) / t->nodes * bytes / w->link + fold;
}

double tt_network_allreduce(const tt_network *w, double bytes, tt_way *way)
{
    const terms t = terms_of(w);
    const double cut = t.added * bytes * w->sum;
    const double doubling = t.rounds * (w->latency + t.together * bytes / w->link) +
                            (t.folds ? 2 * (w->latency + bytes / w->link) : 0) +
                            t.doubled * bytes * w->sum;
    const double halving = 2 * half_rounds(w, &t, bytes) + cut;
    const double ring = 2 * half_ring(w, &t, bytes) + cut;
    tt_way best = TT_WAY_RING;
    double seconds = ring;
    if (t.nodes == 1) {
        best = TT_WAY_HOME;
        seconds = cut;
    } else if (doubling <= halving && doubling <= ring) {
        best = TT_WAY_DOUBLING;
        seconds = doubling;
    } else if (halving < ring) {
        best = TT_WAY_HALVING;
        seconds = halving;
    }
    if (way != NULL) {
        *way = best;
    }
    return seconds;
}

/* Rounds for short vectors, a ring for long ones. */
static double one_way(const tt_network *w, const terms *t, double bytes)
{
    return t->nodes == 1         ? 0
           : bytes > long_vector ? half_ring(w, t, bytes)
                                 : fmin(half_rounds(w, t, bytes), half_ring(w, t, bytes));
}

double tt_network_reduce_scatter(const tt_network *w, double bytes)
{
    const terms t = terms_of(w);
    return (t.nodes == 1 ? 0 : half_ring(w, &t, bytes)) + t.added * bytes * w->sum;
}

double tt_network_allgather(const tt_network *w, double bytes)
{
    const terms t = terms_of(w);
    return one_way(w, &t, bytes);
}
