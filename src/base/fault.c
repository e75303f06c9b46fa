/* fault.c: TUTTI_FAULT parsed into a tt_fault. The text comes from the environment once, in main. */
#include "tutti/base/fault.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tutti/base/text.h"

#ifdef TUTTI_FAULTS

static const struct {
    const char *name;
    tt_fault_kind kind;
} kinds[] = {
    {"nan_grad", TT_FAULT_NAN_GRAD},
    {"inf_grad", TT_FAULT_INF_GRAD},
    {"flip_grad", TT_FAULT_FLIP_GRAD},
    {"bad_norm", TT_FAULT_BAD_NORM},
    {"clip_scaled", TT_FAULT_CLIP_SCALED},
    {"sync_every", TT_FAULT_SYNC_EVERY},
    {"flip_weight", TT_FAULT_FLIP_WEIGHT},
    {"crash_at", TT_FAULT_CRASH_AT},
    {"hang", TT_FAULT_HANG},
    {"enospc", TT_FAULT_ENOSPC},
    {"optimizer_file", TT_FAULT_OPTIMIZER_FILE},
};

static const char *const points[] = {"before_save",  "mid_save", "before_rename",
                                     "after_rename", "in_step",  "in_eval"};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const char usage[] =
    "TUTTI_FAULT=%s: %s; allowed is <what>, <what>:rank=R, <what>:step=S or <what>:rank=R,step=S, "
    "<what> one of nan_grad, inf_grad, flip_grad, bad_norm, clip_scaled, sync_every, enospc, "
    "optimizer_file, flip_weight, hang, hang=<point>, crash_at=<point>, <point> one of "
    "before_save, "
    "mid_save, before_rename, after_rename, in_step, in_eval";

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
        return tt_fail(err, TT_EUSER, usage, text, "before rank or step there is a colon");
    }
    const char *name = strsep(&point, "=");
    for (size_t i = 0; i < COUNT(kinds); i++) {
        if (strcmp(name, kinds[i].name) == 0) {
            fault->kind = kinds[i].kind;
        }
    }
    if (fault->kind == TT_FAULT_NONE) {
        return tt_fail(err, TT_EUSER, usage, text, "no such fault");
    }
    if (fault->kind == TT_FAULT_HANG && point == NULL) {
        strcpy(fault->point, "in_step");
    } else if (fault->kind == TT_FAULT_CRASH_AT && point == NULL) {
        return tt_fail(err, TT_EUSER, usage, text, "crash_at wants a point");
    } else if (fault->kind != TT_FAULT_CRASH_AT && fault->kind != TT_FAULT_HANG && point != NULL) {
        return tt_fail(err, TT_EUSER, usage, text, "only crash_at and hang take a point");
    }
    for (size_t i = 0; point != NULL && i < COUNT(points); i++) {
        if (strcmp(point, points[i]) == 0) {
            strcpy(fault->point, points[i]);
        }
    }
    if (point != NULL && fault->point[0] == '\0') {
        return tt_fail(err, TT_EUSER, usage, text, "no such point");
    }
    if (where != NULL && !parse_where(where, fault)) {
        return tt_fail(err, TT_EUSER, usage, text, "rank or step is wrong");
    }
    const bool shared = fault->kind == TT_FAULT_BAD_NORM || fault->kind == TT_FAULT_CLIP_SCALED ||
                        fault->kind == TT_FAULT_SYNC_EVERY;
    if (shared && fault->rank != -1) {
        return tt_fail(err, TT_EUSER, usage, text, "this is a mistake that all ranks make");
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
        return tt_fail(err, TT_EUSER, usage, text, "too long");
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

bool tt_fault_due(const tt_fault *fault, tt_fault_kind kind, int rank, int64_t step)
{
    return fault->kind == kind && kind != TT_FAULT_NONE &&
           (fault->rank == -1 || fault->rank == rank) && (fault->step == -1 || fault->step == step);
}

void tt_fault_strike(const tt_fault *fault, const char *point, int rank, int64_t step)
{
    if (strcmp(fault->point, point) != 0) {
        return;
    }
    if (tt_fault_due(fault, TT_FAULT_CRASH_AT, rank, step)) {
        kill(getpid(), SIGKILL);
    }
    while (tt_fault_due(fault, TT_FAULT_HANG, rank, step)) {
        pause();
    }
}
