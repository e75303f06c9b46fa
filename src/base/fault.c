/* fault.c: TUTTI_FAULT parsed into a tt_fault. The text comes from the environment once, in main. */
#include "tutti/base/fault.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tutti/base/text.h"

enum { SLOW = 2 }; /* seconds */

#ifdef TUTTI_FAULTS

static const struct {
    const char *name;
    tt_fault_kind kind;
} kinds[] = {
    {"nan_grad", TT_FAULT_NAN_GRAD},
    {"inf_grad", TT_FAULT_INF_GRAD},
    {"flip_grad", TT_FAULT_FLIP_GRAD},
    {"huge_grad", TT_FAULT_HUGE_GRAD},
    {"nan_forward", TT_FAULT_NAN_FORWARD},
    {"bad_norm", TT_FAULT_BAD_NORM},
    {"clip_scaled", TT_FAULT_CLIP_SCALED},
    {"sync_every", TT_FAULT_SYNC_EVERY},
    {"flip_weight", TT_FAULT_FLIP_WEIGHT},
    {"crash_at", TT_FAULT_CRASH_AT},
    {"hang", TT_FAULT_HANG},
    {"slow", TT_FAULT_SLOW},
    {"enospc", TT_FAULT_ENOSPC},
    {"optimizer_file", TT_FAULT_OPTIMIZER_FILE},
};

/* Every moment of a run that has a name, in the order in which they come. */
static const char *const points[] = {
    "in_start",      /* before the state is loaded or made; step 0 */
    "in_load",       /* it has been read, and no weights are made of it yet */
    "in_step",       /* a step begins */
    "in_micro",      /* a micro-batch begins */
    "in_reduce",     /* backward is done; its last bucket is about to go out */
    "in_update",     /* the gradient is whole, and no weight has changed */
    "after_update",  /* all ranks have the new weights */
    "in_metrics",    /* nothing has been written of the step yet */
    "in_eval",       /* an evaluation begins */
    "before_save",   /* nothing has been done yet */
    "in_snapshot",   /* half of the tensors are digested, and copied */
    "part_made",     /* the .part is there without its elements */
    "mid_save",      /* half of the tensors are written */
    "before_sync",   /* all are, and may not be on the disk */
    "mid_read_back", /* half of the tensors have been read back */
    "before_rename", /* the .part is whole */
    "after_rename",  /* the checkpoint has its name */
    "before_prune",  /* the metrics say so; old ones are still there */
    "after_prune",   /* they are gone */
    "in_end",        /* all is done */
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The row of the table; NULL: there is none. */
static const char *point_named(const char *name)
{
    for (size_t i = 0; i < COUNT(points); i++) {
        if (strcmp(name, points[i]) == 0) {
            return points[i];
        }
    }
    return NULL;
}

static bool takes_point(tt_fault_kind kind)
{
    return kind == TT_FAULT_CRASH_AT || kind == TT_FAULT_HANG || kind == TT_FAULT_SLOW;
}

/* Of a mistake that all ranks make. */
static bool is_shared(tt_fault_kind kind)
{
    return kind == TT_FAULT_BAD_NORM || kind == TT_FAULT_CLIP_SCALED || kind == TT_FAULT_SYNC_EVERY;
}

/* The sentence about a fault that is not one: what there is follows from the tables. */
static tt_code refuse(const char *text, const char *why, tt_err *err)
{
    tt_text all = {0};
    for (size_t i = 0; i < COUNT(kinds); i++) {
        tt_text_add(&all, "%s%s%s", i == 0 ? "" : ", ", kinds[i].name,
                    takes_point(kinds[i].kind) ? "=<point>" : "");
    }
    for (size_t i = 0; i < COUNT(points); i++) {
        tt_text_add(&all, "%s%s", i == 0 ? "; <point> one of " : ", ", points[i]);
    }
    tt_fail(err, TT_EUSER,
            "TUTTI_FAULT=%.100s: %s; allowed is <what>, <what>:rank=R, <what>:step=S or "
            "<what>:rank=R,step=S, <what> one of %s",
            text, why, all.failed ? "many" : all.data);
    tt_text_free(&all);
    return err->code;
}

/* The part after the colon: rank=R, step=S, in any order, each at most once. */
static bool parse_where(char *where, tt_fault *fault)
{
    for (char *rest = where, *part; (part = strsep(&rest, ",")) != NULL;) {
        int64_t *target = NULL;
        if (strncmp(part, "rank=", 5) == 0) {
            target = &fault->rank;
        } else if (strncmp(part, "step=", 5) == 0) {
            target = &fault->step;
        }
        if (target == NULL || *target != -1 || !tt_parse_int(part + 5, target) || *target < 0) {
            return false;
        }
    }
    return true;
}

static tt_code parse(char *copy, const char *text, tt_fault *fault, tt_err *err)
{
    char *where = copy;
    char *what = strsep(&where, ":");
    char *point = what;
    if (strchr(what, ',') != NULL) {
        return refuse(text, "before rank or step there is a colon", err);
    }
    const char *name = strsep(&point, "=");
    for (size_t i = 0; i < COUNT(kinds); i++) {
        if (strcmp(name, kinds[i].name) == 0) {
            fault->kind = kinds[i].kind;
        }
    }
    if (fault->kind == TT_FAULT_NONE) {
        return refuse(text, "no such fault", err);
    }
    if (point == NULL && fault->kind == TT_FAULT_HANG) {
        strcpy(fault->point, "in_step");
    } else if (point == NULL && takes_point(fault->kind)) {
        return refuse(text, "it wants a point", err);
    } else if (point != NULL && !takes_point(fault->kind)) {
        return refuse(text, "it takes no point", err);
    }
    if (point != NULL && point_named(point) == NULL) {
        return refuse(text, "no such point", err);
    }
    if (point != NULL) {
        strcpy(fault->point, point_named(point));
    }
    if (where != NULL && !parse_where(where, fault)) {
        return refuse(text, "rank or step is wrong", err);
    }
    if (is_shared(fault->kind) && fault->rank != -1) {
        return refuse(text, "this is a mistake that all ranks make", err);
    }
    return TT_OK;
}

#endif

tt_code tt_fault_parse(const char *text, tt_fault *fault, tt_err *err)
{
    *fault = (tt_fault){.rank = -1, .step = -1};
    if (text == NULL || text[0] == '\0') {
        return TT_OK;
    }
#ifdef TUTTI_FAULTS
    char copy[256];
    if (strlen(text) >= sizeof copy) {
        return refuse(text, "too long", err);
    }
    strcpy(copy, text);
    tt_code rc = parse(copy, text, fault, err);
    if (rc != TT_OK) {
        *fault = (tt_fault){.rank = -1, .step = -1};
    }
    return rc;
#else
    return tt_fail(err, TT_EUSER,
                   "TUTTI_FAULT=%s is set, but this build has no faults; unset it, or build with "
                   "CONFIG=debug",
                   text);
#endif
}

tt_code tt_fault_check(const tt_fault *fault, int ranks, int64_t steps, tt_err *err)
{
    const long long rank = fault->rank, step = fault->step;
    if (fault->kind == TT_FAULT_NONE) {
        return TT_OK;
    }
    if (rank >= ranks) {
        return tt_fail(err, TT_EUSER,
                       "TUTTI_FAULT: there is no rank %lld: of %d ranks the last is %d", rank,
                       ranks, ranks - 1);
    }
    if (step > steps) {
        return tt_fail(err, TT_EUSER, "TUTTI_FAULT: there is no step %lld: run.steps is %lld", step,
                       (long long)steps);
    }
    return TT_OK;
}

bool tt_fault_due(const tt_fault *fault, tt_fault_kind kind, int rank, int64_t step)
{
    return fault->kind == kind && kind != TT_FAULT_NONE &&
           (fault->rank == -1 || fault->rank == rank) && (fault->step == -1 || fault->step == step);
}

static void sleep_for(int seconds)
{
    struct timespec left = {.tv_sec = seconds};
    while (nanosleep(&left, &left) != 0) {
    }
}

void tt_fault_strike(const tt_fault *fault, const char *point, int rank, int64_t step)
{
#ifdef TUTTI_FAULTS
    assert(point_named(point) != NULL); /* or nothing would ever strike there */
#endif
    if (strcmp(fault->point, point) != 0) {
        return;
    }
    if (tt_fault_due(fault, TT_FAULT_CRASH_AT, rank, step)) {
        kill(getpid(), SIGKILL);
    }
    const bool hangs = tt_fault_due(fault, TT_FAULT_HANG, rank, step);
    if (hangs || tt_fault_due(fault, TT_FAULT_SLOW, rank, step)) {
        fprintf(stderr, "fault: rank %d %s in step %lld: %s\n", rank, hangs ? "hangs" : "is slow",
                (long long)step, point);
        while (hangs) {
            pause();
        }
        sleep_for(SLOW);
    }
}
