/* params.h: the parameter table. Offsets, stages (buckets), optimizer groups, checkpoint and export
 * names all come from it; nothing is decided by position or by matching names.
 *
 * The flat vector holds the parameters in table order, each at a multiple of TT_ALIGN / 2 = 32
 * elements; gaps hold zeros, get no gradient and stay zero. Tied parameters share an offset: the
 * table lists them once (the head of a tied model has no row).
 *
 * Stages ascend in the order of forward: 0 = embeddings, 1..L = blocks, L+1 = final norm (and head
 * when untied). Backward finishes them in descending order. */
#ifndef TUTTI_MODEL_PARAMS_H
#define TUTTI_MODEL_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/base/options.h"
#include "tutti/base/status.h"

/* The model's shape, resolved from the configuration (zeros filled in) and checked. */
typedef struct tt_shape {
    int64_t L, H, G, D, C, F, T;
    int64_t V;          /* rows of wte: model.vocab */
    int64_t vocab_used; /* ids that exist in the data: columns beyond take no part */
    double dropout;
    bool tied;
} tt_shape;

/* data_vocab: of the token file (0: unknown, V is then taken as used). Refuses (TT_EUSER) heads
 * that do not divide channels, kv_heads that do not divide heads, vocab below data_vocab. */
tt_code tt_shape_resolve(tt_shape *shape, const tt_config *config, int64_t data_vocab, tt_err *err);

/* What a parameter is for: how the model finds its weights. */
typedef enum tt_role {
    TT_WTE,
    TT_WPE,
    TT_NORM_1_GAIN,
    TT_NORM_1_BIAS,
    TT_QKV_WEIGHT,
    TT_QKV_BIAS,
    TT_PROJ_WEIGHT,
    TT_PROJ_BIAS,
    TT_NORM_2_GAIN,
    TT_NORM_2_BIAS,
    TT_FC_WEIGHT,
    TT_FC_BIAS,
    TT_DOWN_WEIGHT,
    TT_DOWN_BIAS,
    TT_NORM_F_GAIN,
    TT_NORM_F_BIAS,
    TT_HEAD_WEIGHT,
    TT_ROLES
} tt_role;

/* The name of its parameters, in a block without the block's number: "attn.qkv.weight". */
const char *tt_role_name(tt_role role);

typedef enum tt_init { TT_INIT_ZERO, TT_INIT_ONE, TT_INIT_NORMAL } tt_init;

typedef struct tt_param {
    char name[TT_NAME]; /* "h.0.attn.qkv.weight" */
    int dims;           /* 1 or 2 */
    int64_t dim[2];
    int64_t offset, count; /* elements in the flat vector */
    tt_init init;
    float init_std;
    bool decay; /* weight decay applies: matrices only */
    tt_role role;
    int stage;
    bool up;      /* a matrix that matmuls multiply in FP32 (model/autocast.h) */
    int64_t wide; /* then, where its FP32 copy lies in the array of such; -1: it has none */
} tt_param;

typedef struct tt_params {
    int count;
    tt_param *param;    /* [count], owned */
    int64_t total;      /* N with gaps: length of the flat vector, multiple of 64 */
    int64_t trained;    /* N without gaps */
    int64_t wide;       /* length of the array of FP32 copies */
    int stages;         /* L + 2 */
    int64_t *stage_end; /* [stages], owned */
} tt_params;

tt_code tt_params_make(tt_params *params, const tt_shape *shape, tt_err *err);
void tt_params_free(tt_params *params);
const tt_param *tt_params_find(const tt_params *params, const char *name); /* NULL: none */

/* Elements of the flat vector from the parameter to where the next may begin. */
int64_t tt_params_room(const tt_param *param);

/* The parameter of this role in this stage; NULL: the stage has none. The head of a tied model is
 * wte, although that row belongs to stage 0. */
const tt_param *tt_params_role(const tt_params *params, tt_role role, int stage);

/* Initial values of flat elements [first, first+count) into out[count]: a function of (seed,
 * parameter, element) only. GPT-2's: normal 0.02, residual projections 0.02 / sqrt(2 L). */
void tt_params_init(const tt_params *params, uint64_t seed, int64_t first, int64_t count,
                    float *out);

#endif
