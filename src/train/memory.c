/* memory.c: the plan's memory and the system's. See memory.h. */
#include "tutti/train/memory.h"

#include <math.h>
#include <stdint.h>

#include "tutti/base/file.h"
#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"

#include "train/train_impl.h"

tt_code tt_memory_check(const tt_plan *plan, const tt_arena arena[TT_MEM_COMPONENTS],
                        const tt_arena window[TT_MEM_COMPONENTS], tt_err *err)
{
    for (int i = 0; i < TT_MEM_COMPONENTS; i++) {
        const size_t planned = plan->own[i] + plan->once[i];
        const size_t used = arena[i].used + window[i].used;
        if (used != planned) {
            return tt_fail(err, TT_EWORLD, "bug: %s was planned with %zu bytes and took %zu",
                           tt_component_names[i], planned, used);
        }
    }
    return TT_OK;
}

/* ---- first touch ---- */

static void touch_if(void *array, int64_t first, int64_t count, size_t size, int threads)
{
    if (array != NULL) {
        tt_touch((unsigned char *)array + tt_bytes(first, size), tt_bytes(count, size), threads);
    }
}

void tt_memory_touch(const tt_trainer *t)
{
    const tt_blueprint *p = &t->print;
    const tt_window *all = &t->optimizer.all; /* empty when it is in a file */
    const int threads = t->ctx.threads;
    for (int i = 0; i < t->segments; i++) { /* an update divides a segment among the threads */
        const tt_segment *s = &t->segment[i];
        tt_beat(t->world, "touching memory");
        touch_if(all->master, s->local, s->count, sizeof *all->master, threads);
        touch_if(all->low, s->local, s->count, sizeof *all->low, threads);
        touch_if(all->m, s->local, s->count, sizeof *all->m, threads);
        touch_if(all->v, s->local, s->count, sizeof *all->v, threads);
    }
    for (int i = 0; i < p->params.count; i++) {
        const tt_param *param = &p->params.param[i];
        tt_beat(t->world, NULL);
        const int64_t weight = param->offset - p->weight_ring.shift[param->stage];
        const int64_t gradient = param->offset - p->gradient_ring.shift[param->stage];
        touch_if(t->weights, weight, param->count, p->act_bytes, threads);
        touch_if(t->gradient.sum, gradient, param->count, sizeof *t->gradient.sum, threads);
        touch_if(t->gradient.fixed, gradient, param->count, sizeof *t->gradient.fixed, threads);
    }
    for (int i = 0; i < TT_MEM_COMPONENTS; i++) {
        tt_beat(t->world, NULL);
        tt_arena_touch(&t->arena[i], threads);
        if (t->window[i].base != NULL) {
            tt_arena_touch(&t->window[i], threads);
        }
    }
}

/* ---- does it fit? ---- */

tt_code tt_memory_warn(const tt_trainer *t, tt_err *err)
{
    enum { SHORT, WANTED, THERE, BY_ITSELF, NUMBERS };
    tt_code rc = TT_OK;
    const tt_plan *plan = &t->print.plan;
    const size_t grows = plan->libraries > t->began ? plan->libraries - t->began : 0;
    const double rank = (double)(plan->total + grows);
    const int ranks = t->world != NULL ? t->world->local_size : 1;
    const size_t node = tt_memory_available(""), process = tt_memory_allowed();
    double mine[NUMBERS] = {[SHORT] = -1}, most = -1;
    if (node != SIZE_MAX) {
        mine[SHORT] = rank * ranks - (double)node;
        mine[WANTED] = rank * ranks;
        mine[THERE] = (double)node;
    }
    if (process != SIZE_MAX && rank - (double)process > mine[SHORT]) {
        mine[SHORT] = rank - (double)process;
        mine[WANTED] = rank;
        mine[THERE] = (double)process;
        mine[BY_ITSELF] = 1;
    }
    /* The numbers of the node that lacks most. */
    most = mine[SHORT];
    TT_TRY(tt_max_f64(t->world, &most, 1, err));
    if (most <= 0) {
        goto out;
    }
    for (int i = 0; i < NUMBERS && mine[SHORT] < most; i++) {
        mine[i] = 0;
    }
    TT_TRY(tt_max_f64(t->world, mine, NUMBERS, err));
    if (t->world == NULL || t->world->rank == 0) {
        char wanted[32], there[32];
        tt_human_bytes(mine[WANTED], wanted);
        tt_human_bytes(mine[THERE], there);
        tt_warn(t->log,
                "%s will want %s more memory, and %s %s; less is wanted with "
                "memory.recompute, a smaller batch.micro, memory.zero 1 or memory.optimizer_file",
                mine[BY_ITSELF] > 0 ? "a rank" : "the ranks of a node", wanted,
                mine[BY_ITSELF] > 0 ? "its limits (ulimit) allow" : "the node has", there);
    }
out:
    return rc;
}

/* ---- measured ---- */

tt_code tt_memory_measure(tt_memory *memory, const tt_trainer *t, tt_err *err)
{
    const tt_plan *plan = &t->print.plan;
    double arenas = 0;
    /* Pages that others map too count as many times as they are mapped, but in the proportional set. */
    const bool shares = t->print.node_ranks > 1 && tt_pss() > 0;
    const double others = shares ? (double)tt_rss() - (double)tt_pss() : 0;
    *memory = (tt_memory){.began = (double)(shares ? t->began_part : t->began)};
    for (int i = 0; i < TT_MEM_COMPONENTS; i++) {
        const double window = (double)tt_arena_resident(&t->window[i]);
        const double resident = (double)tt_arena_resident(&t->arena[i]) +
                                (plan->once[i] > 0 ? window / t->print.node_ranks : window);
        memory->component[i] = (tt_measured){(double)plan->bytes[i], resident};
        arenas += resident;
    }
    const double resident = (double)tt_rss() - others, peak = (double)tt_rss_peak() - others;
    /* What a process has of pages it shares depends on who else maps them now: the highest of all that
     * was seen. */
    memory->peak = fmax(fmax(resident, peak), memory->began);
    memory->libraries =
        (tt_measured){(double)plan->libraries, resident > arenas ? resident - arenas : 0};
    memory->total = (tt_measured){(double)(plan->total + plan->libraries), resident};
    _Static_assert(sizeof *memory % sizeof(double) == 0, "it is numbers and nothing else");
    return tt_max_f64(t->world, (double *)(void *)memory, sizeof *memory / sizeof(double), err);
}

static void report_row(tt_log *log, const char *name, const tt_measured *held)
{
    char planned[32], measured[32], difference[32];
    const double more = held->measured - held->planned;
    tt_human_bytes(held->planned, planned);
    tt_human_bytes(held->measured, measured);
    tt_human_bytes(more < 0 ? -more : more, difference);
    tt_info(log, "  %-14s %12s %12s %c%s", name, planned, measured, more < 0 ? '-' : '+',
            difference);
}

void tt_memory_report(const tt_memory *memory, tt_log *log)
{
    char began[32], peak[32];
    tt_info(log, "memory of the largest rank");
    tt_info(log, "  %-14s %12s %12s difference", "", "planned", "measured");
    for (int i = 0; i < TT_MEM_COMPONENTS; i++) {
        if (memory->component[i].planned > 0) {
            report_row(log, tt_component_names[i], &memory->component[i]);
        }
    }
    report_row(log, "libraries", &memory->libraries);
    report_row(log, "total", &memory->total);
    tt_human_bytes(memory->began, began);
    tt_human_bytes(memory->peak, peak);
    tt_info(log, "  peak resident %s; %s before anything was allocated", peak, began);
}

static void add_held(tt_text *out, const char *name, const tt_measured *held)
{
    tt_text_add(out, "\"%s\": {\"planned\": %.0f, \"measured\": %.0f}, ", name, held->planned,
                held->measured);
}

void tt_memory_text(const tt_memory *memory, tt_text *out)
{
    tt_text_add(out, "{");
    for (int i = 0; i < TT_MEM_COMPONENTS; i++) {
        add_held(out, tt_component_names[i], &memory->component[i]);
    }
    add_held(out, "libraries", &memory->libraries);
    add_held(out, "total", &memory->total);
    tt_text_add(out, "\"began\": %.0f, \"peak_rss\": %.0f}", memory->began, memory->peak);
}
