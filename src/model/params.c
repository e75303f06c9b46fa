/* params.c: the parameter table: names, shapes, places in the flat vector, initial values.
 *
 * The static table below is the only list of parameters in the program. Each row becomes one
 * parameter (stem, crown) or L of them (block).
 *
 * Invariants: parameters ascend in the flat vector by stage, then by row; each starts at a multiple
 * of ALIGN_PARAM elements and each stage at a multiple of ALIGN_STAGE; what lies between is never
 * anything but zero. Initial values depend on (seed, parameter, element) and nothing else.
 *
 * tt_params owns param[] and stage_end[]. Reads tt_shape, writes tt_params; next: program.c. */
#include "tutti/model/params.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/base/rng.h"

enum { ALIGN_PARAM = TT_ALIGN / 2, ALIGN_STAGE = TT_ALIGN }; /* elements */

/* Where a row's parameters live. */
typedef enum section { STEM, BLOCK, CROWN } section;

/* The letters of a shape, as dimensions of a parameter. */
typedef enum letter { NONE, V, T, C, QKV, F } letter;

/* Standard deviation of normal initial values. Residual projections add up over 2 L branches, so
 * they start smaller by the root of that. */
typedef enum deviation { FLAT, PLAIN, RESIDUAL } deviation;

typedef struct row {
    tt_role role;
    section part;
    const char *name; /* within the block, for BLOCK */
    letter dim[2];    /* out-features first */
    tt_init init;
    deviation std;
    bool decay;
} row;

static const row rows[] = {
    {TT_WTE, STEM, "wte", {V, C}, TT_INIT_NORMAL, PLAIN, true},
    {TT_WPE, STEM, "wpe", {T, C}, TT_INIT_NORMAL, PLAIN, true},
    {TT_NORM_1_GAIN, BLOCK, "ln_1.weight", {C, NONE}, TT_INIT_ONE, FLAT, false},
    {TT_NORM_1_BIAS, BLOCK, "ln_1.bias", {C, NONE}, TT_INIT_ZERO, FLAT, false},
    {TT_QKV_WEIGHT, BLOCK, "attn.qkv.weight", {QKV, C}, TT_INIT_NORMAL, PLAIN, true},
    {TT_QKV_BIAS, BLOCK, "attn.qkv.bias", {QKV, NONE}, TT_INIT_ZERO, FLAT, false},
    {TT_PROJ_WEIGHT, BLOCK, "attn.proj.weight", {C, C}, TT_INIT_NORMAL, RESIDUAL, true},
    {TT_PROJ_BIAS, BLOCK, "attn.proj.bias", {C, NONE}, TT_INIT_ZERO, FLAT, false},
    {TT_NORM_2_GAIN, BLOCK, "ln_2.weight", {C, NONE}, TT_INIT_ONE, FLAT, false},
    {TT_NORM_2_BIAS, BLOCK, "ln_2.bias", {C, NONE}, TT_INIT_ZERO, FLAT, false},
    {TT_FC_WEIGHT, BLOCK, "mlp.fc.weight", {F, C}, TT_INIT_NORMAL, PLAIN, true},
    {TT_FC_BIAS, BLOCK, "mlp.fc.bias", {F, NONE}, TT_INIT_ZERO, FLAT, false},
    {TT_DOWN_WEIGHT, BLOCK, "mlp.proj.weight", {C, F}, TT_INIT_NORMAL, RESIDUAL, true},
    {TT_DOWN_BIAS, BLOCK, "mlp.proj.bias", {C, NONE}, TT_INIT_ZERO, FLAT, false},
    {TT_NORM_F_GAIN, CROWN, "ln_f.weight", {C, NONE}, TT_INIT_ONE, FLAT, false},
    {TT_NORM_F_BIAS, CROWN, "ln_f.bias", {C, NONE}, TT_INIT_ZERO, FLAT, false},
    {TT_HEAD_WEIGHT, CROWN, "head.weight", {V, C}, TT_INIT_NORMAL, PLAIN, true}, /* untied only */
};
enum { ROWS = sizeof rows / sizeof rows[0] };

const char *tt_role_name(tt_role role)
{
    int i = 0;
    while (rows[i].role != role) { /* every role has a row */
        i++;
    }
    return rows[i].name;
}

static int64_t extent(const tt_shape *shape, letter dim)
{
    switch (dim) {
    case V:
        return shape->V;
    case T:
        return shape->T;
    case C:
        return shape->C;
    case QKV:
        return (shape->H + 2 * shape->G) * shape->D;
    case F:
        return shape->F;
    case NONE:
        break;
    }
    return 1;
}

static float init_std(const tt_shape *shape, deviation std)
{
    switch (std) {
    case PLAIN:
        return 0.02f;
    case RESIDUAL:
        return (float)(0.02 / sqrt(2.0 * (double)shape->L));
    case FLAT:
        break;
    }
    return 0.0f;
}

/* Appends the row's parameter of one stage at the flat position *end, and moves *end past it. */
static void append(tt_params *params, const tt_shape *shape, const row *from, int stage,
                   int64_t *end)
{
    tt_param *param = &params->param[params->count++];
    if (from->part == BLOCK) {
        snprintf(param->name, sizeof param->name, "h.%d.%s", stage - 1, from->name);
    } else {
        snprintf(param->name, sizeof param->name, "%s", from->name);
    }
    param->dims = from->dim[1] == NONE ? 1 : 2;
    param->dim[0] = extent(shape, from->dim[0]);
    param->dim[1] = extent(shape, from->dim[1]);
    param->count = tt_mul(param->dim[0], param->dim[1]);
    param->offset = tt_round_up(*end, ALIGN_PARAM);
    param->init = from->init;
    param->init_std = init_std(shape, from->std);
    param->decay = from->decay;
    param->role = from->role;
    param->stage = stage;
    param->wide = -1;
    params->trained += param->count;
    *end = param->offset + param->count;
}

tt_code tt_params_make(tt_params *params, const tt_shape *shape, tt_err *err)
{
    tt_code rc = TT_OK;
    int stages = tt_int(shape->L + 2);
    *params = (tt_params){.stages = stages};
    params->param = tt_alloc(tt_mul(stages, ROWS), sizeof *params->param, err);
    params->stage_end = tt_alloc(stages, sizeof *params->stage_end, err);
    if (params->param == NULL || params->stage_end == NULL) {
        rc = err->code;
        goto out;
    }
    int64_t end = 0;
    for (int stage = 0; stage < stages; stage++) {
        section here = stage == 0 ? STEM : stage == stages - 1 ? CROWN : BLOCK;
        for (int i = 0; i < ROWS; i++) {
            bool absent = rows[i].role == TT_HEAD_WEIGHT && shape->tied;
            if (rows[i].part == here && !absent) {
                append(params, shape, &rows[i], stage, &end);
            }
        }
        end = tt_round_up(end, ALIGN_STAGE);
        params->stage_end[stage] = end;
    }
    params->total = end;
out:
    if (rc != TT_OK) {
        tt_params_free(params);
    }
    return rc;
}

void tt_params_free(tt_params *params)
{
    free(params->param);
    free(params->stage_end);
    *params = (tt_params){0};
}

const tt_param *tt_params_find(const tt_params *params, const char *name)
{
    for (int i = 0; i < params->count; i++) {
        if (strcmp(params->param[i].name, name) == 0) {
            return &params->param[i];
        }
    }
    return NULL;
}

int64_t tt_params_room(const tt_param *param)
{
    return tt_round_up(param->count, ALIGN_PARAM);
}

const tt_param *tt_params_role(const tt_params *params, tt_role role, int stage)
{
    int first = 0, end = params->count; /* rows stand in the order of stages */
    while (first < end) {
        const int middle = first + (end - first) / 2;
        if (params->param[middle].stage < stage) {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    for (int i = first; i < params->count && params->param[i].stage == stage; i++) {
        if (params->param[i].role == role) {
            return &params->param[i];
        }
    }
    bool tied = role == TT_HEAD_WEIGHT && stage == params->stages - 1;
    return tied ? tt_params_role(params, TT_WTE, 0) : NULL;
}

/* Elements [first, end) of one parameter, counted within it. */
static void fill(const tt_param *param, tt_key key, uint64_t stream, int64_t first, int64_t end,
                 float *out)
{
    for (int64_t e = first; e < end; e++) {
        float value = 0.0f;
        if (param->init == TT_INIT_ONE) {
            value = 1.0f;
        } else if (param->init == TT_INIT_NORMAL) {
            value = param->init_std * tt_rng_normal(key, stream, (uint64_t)e);
        }
        out[e - first] = value;
    }
}

void tt_params_init(const tt_params *params, uint64_t seed, int64_t first, int64_t count,
                    float *out)
{
    assert(first >= 0 && count >= 0 && first + count <= params->total);
    if (count == 0) {
        return;
    }
    tt_key key = tt_rng_key(seed, TT_RNG_INIT, 0);
    memset(out, 0, tt_bytes(count, sizeof *out));
    for (int i = 0; i < params->count; i++) {
        const tt_param *param = &params->param[i];
        int64_t begin = tt_max(first, param->offset);
        int64_t end = tt_min(first + count, param->offset + param->count);
        if (begin < end) {
            fill(param, key, (uint64_t)i, begin - param->offset, end - param->offset,
                 out + (begin - first));
        }
    }
}
