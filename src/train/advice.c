/* advice.c: what is not well with where ranks run. See advice.h.
 *
 * The flags are those of Open MPI's mpirun and Slurm's srun. ppr:N:DOMAIN:PE=C puts N ranks on each
 * domain and gives each C cores of its own; --bind-to core must be said with it.
 *
 * Owns nothing. Reads masks and /sys; next: cli/train.c. */
#include "tutti/train/advice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tutti/base/narrow.h"
#include "tutti/train/plan.h"

/* "1 thread", "2 threads". */
typedef struct words {
    char text[48];
} words;

static words many(int count, const char *one, const char *more)
{
    words w;
    snprintf(w.text, sizeof w.text, "%d %s", count, count == 1 ? one : more);
    return w;
}

/* How `ranks` ranks a node get `cores` cores each: by domain where they divide evenly among them. */
static void bind(const tt_place *p, int ranks, int cores, tt_text *out)
{
    const bool siblings = p->node.processors > p->node.cores;
    const int D = p->node.domains;
    const bool even = ranks % D == 0 && ranks / D * cores <= p->node.cores / D;
    tt_text_add(out,
                "mpirun --map-by ppr:%d:%s:PE=%d --bind-to core, or srun --ntasks-per-node=%d "
                "--cpus-per-task=%d --cpu-bind=cores%s",
                even ? ranks / D : ranks, even && D > 1 ? "numa" : "node", cores, ranks, cores,
                siblings ? " --threads-per-core=1" : "");
}

/* A rank has a core where it could have several: how Open MPI binds one or two ranks a node. */
static bool pinned(const tt_place *p, tt_text *out)
{
    const int each = p->node.cores / p->ranks;
    if (!p->launched || p->one || p->own.cores > 1 || each < 2) {
        return false;
    }
    tt_text_add(
        out,
        "each rank is bound to one core, but there are %d for the %s of this node; launchers "
        "bind so unless told otherwise: ",
        p->node.cores, many(p->ranks, "rank", "ranks").text);
    bind(p, p->ranks, each, out);
    tt_text_add(out, "\n");
    return true;
}

/* More threads than processors take turns; those that wait for the others wait long. */
static bool crowded(const tt_place *p, tt_text *out)
{
    const int threads = p->threads * p->sharers, fit = p->own.processors / p->sharers;
    if (threads <= p->own.processors) {
        return false;
    }
    if (p->sharers > 1) {
        tt_text_add(out, "%d ranks of %s share %s: ", p->sharers,
                    many(p->threads, "thread", "threads").text,
                    many(p->own.processors, "processor", "processors").text);
    } else {
        tt_text_add(
            out, "a rank has %s for %s: ", many(p->own.processors, "processor", "processors").text,
            many(p->threads, "thread", "threads").text);
    }
    if (p->threads * p->ranks <= p->node.cores) { /* the node has room */
        bind(p, p->ranks, p->threads, out);
    } else if (fit >= 1) {
        tt_text_add(out, "set OMP_NUM_THREADS=%d or run.threads=%d", fit, fit);
    } else {
        tt_text_add(out, "they take turns; at most %d of them run at once", p->own.processors);
    }
    tt_text_add(out, "\n");
    return true;
}

/* Two threads of a core share its units, which one alone can fill. */
static void doubled(const tt_place *p, tt_text *out)
{
    const int threads = p->threads * p->sharers, fit = p->own.cores / p->sharers;
    if (threads <= p->own.cores || fit < 1) {
        return;
    }
    tt_text_add(out,
                "%s on %s: two threads of a core share its units, and a matmul's thread fills them "
                "alone; set OMP_NUM_THREADS=%d or run.threads=%d\n",
                many(threads, "thread runs", "threads run").text,
                many(p->own.cores, "core", "cores").text, fit, fit);
}

/* Ranks that may run anywhere: threads leave the memory that they touched first. */
static void spread(const tt_place *p, tt_text *out)
{
    const int D = p->own.domains;
    if (D < 2 || p->own.processors < p->node.processors) {
        return;
    }
    const bool even = p->ranks % D == 0;
    const int ranks = even ? p->ranks : D;
    tt_text_add(out, "%s run%s on all %d NUMA domains of this node, far from part of %s memory; ",
                many(p->ranks, "rank", "ranks").text, p->ranks == 1 ? "s" : "", D,
                p->ranks == 1 ? "its" : "their");
    tt_text_add(out, even ? "bind them: " : "run one a domain: ");
    bind(p, ranks, tt_int(tt_max(1, p->node.cores / ranks)), out);
    tt_text_add(out, "\n");
}

void tt_advice_text(const tt_place *place, tt_text *out)
{
    if (pinned(place, out)) {
        return; /* the rest will look different then */
    }
    if (!crowded(place, out)) {
        doubled(place, out);
    }
    spread(place, out);
}

static bool is_launched(void)
{
    static const char *const signs[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "SLURM_STEP_ID"};
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        if (getenv(signs[i]) != NULL) {
            return true;
        }
    }
    return false;
}

/* False where the system does not say on which processors the rank may run. */
static bool look(tt_place *place, const tt_world *world, const tt_config *config, int threads)
{
    tt_mask own, parent, node;
    if (!tt_mask_of(&own, 0)) {
        return false;
    }
    const bool bound_by = tt_mask_of(&parent, getppid());
    tt_mask_allowed(&node, "", bound_by ? &parent : NULL);
    *place = (tt_place){.ranks = world->local_size,
                        .sharers = world->mask_size,
                        .threads = threads,
                        .one = tt_threads_choose(config, 0) == 1,
                        .launched = is_launched(),
                        .own = tt_span_of(&own, ""),
                        .node = tt_span_of(&node, "")};
    return true;
}

tt_code tt_advice_give(tt_world *world, const tt_config *config, int threads, tt_log *log,
                       tt_err *err)
{
    tt_code rc = TT_OK;
    tt_text text = {0};
    tt_place place;
    if (look(&place, world, config, threads)) {
        tt_advice_text(&place, &text);
    }
    double speaker =
        text.length > 0 ? world->size - world->rank : 0; /* the largest is the lowest's */
    TT_TRY(tt_agree(world, text.failed ? tt_fail(err, TT_EWORLD, "out of memory") : TT_OK, err));
    TT_TRY(tt_max_f64(world, &speaker, 1, err));
    if (text.length > 0 && tt_int((int64_t)speaker) == world->size - world->rank) {
        for (char *rest = text.data, *line = strsep(&rest, "\n"); rest != NULL;
             line = strsep(&rest, "\n")) {
            tt_warn(log, "%s", line);
        }
    }
out:
    tt_text_free(&text);
    return rc;
}
