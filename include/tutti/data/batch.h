/* batch.h: which samples a step takes, and the micro-batch that a rank plays.
 *
 * Step s (from 0) takes global samples [s*S, (s+1)*S), S = B*K*R. Global sample g is element
 * permute(epoch, g mod n) of the n samples of the part, epoch = g div n; the stream runs on into the
 * next epoch. Within a step, sequence b of micro-batch k on rank r is global sample
 *     s*S + (k*R + r)*B + b.
 * A sample is a window of T tokens (stream: tokens [i*T, i*T+T], targets shifted by one) or a
 * document (documents: its first T+1 tokens; positions past the end hold the end token and have
 * target -1).
 *
 * Invariant: a batch is a pure function of (file, seed, mode, step, k, rank, size); no state.
 *
 * Reads data/tokens.h, writes tt_batch; next: model/model.h. */
#ifndef TUTTI_DATA_BATCH_H
#define TUTTI_DATA_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/base/options.h"
#include "tutti/base/status.h"
#include "tutti/data/tokens.h"

/* The batch of one optimizer step, resolved. */
typedef struct tt_split {
    int64_t sequences;  /* S: per step over all ranks */
    int64_t micro;      /* B: per micro-batch and rank */
    int64_t accumulate; /* K: micro-batches per rank and step */
    int ranks;          /* R */
} tt_split;

/* Any two of sequences, micro, accumulate (0 = not given) give the third; with R ranks S = B*K*R.
 * With sequences or micro alone, accumulate is 1. Three that do not fit, or two that do not divide,
 * are TT_EUSER with the nearest possible sets. */
tt_code tt_split_resolve(tt_split *split, int64_t sequences, int64_t micro, int64_t accumulate,
                         int ranks, tt_err *err);

/* A source of samples: a part of a token file seen through a mode. */
typedef struct tt_sampler {
    tt_tokens *tokens; /* borrowed */
    bool documents;    /* data.mode */
    bool shuffle;      /* false for evaluation: sample i is window or document i */
    uint64_t seed;
    int64_t context; /* T */
    int64_t samples; /* n */
    int32_t end;     /* end token: fills what is masked */
} tt_sampler;

/* Fails (TT_EUSER) when the part is shorter than one sequence: T+1 tokens, or one document. */
tt_code tt_sampler_open(tt_sampler *sampler, tt_tokens *tokens, const char *mode, uint64_t seed,
                        int64_t context, bool shuffle, tt_err *err);

typedef struct tt_batch {
    int64_t B, T;
    int32_t *token;   /* [B,T], owned by whoever made the batch */
    int32_t *target;  /* [B,T], -1: takes no part in loss or gradient */
    int64_t *sample;  /* [B] global sample index (before the permutation), keys dropout */
    int32_t *scratch; /* [T+1] */
} tt_batch;

/* Bytes for the arrays of a batch (for the plan), and carving them from memory of that size, which is
 * aligned to TT_ALIGN and stays its owner's. */
size_t tt_batch_bytes(int64_t B, int64_t T);
void tt_batch_place(tt_batch *batch, int64_t B, int64_t T, void *memory);

/* Micro-batch k (0-based) of rank r at step s (0-based). Local. */
tt_code tt_batch_fill(tt_batch *batch, tt_sampler *sampler, const tt_split *split, int64_t step,
                      int64_t k, int rank, tt_err *err);

/* Samples first .. first+B-1; those at or past `end` are wholly masked. For evaluation: `end` is at
 * most n there, because past n the samples start again. */
tt_code tt_batch_fill_range(tt_batch *batch, tt_sampler *sampler, int64_t first, int64_t end,
                            tt_err *err);

/* Which window or document a global sample index is, epoch included. */
int64_t tt_sampler_element(const tt_sampler *sampler, int64_t global_sample);

#endif
