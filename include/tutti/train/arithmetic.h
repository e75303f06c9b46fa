/* arithmetic.h: what the bits of a run depend on beside its configuration, as one line of text.
 *
 *     tutti 0.1.0, bf16 on avx2, glibc 2.36, libm 5cedcc5d
 *     tutti 0.1.0, fp32 on avx2, matmuls by OpenBLAS 0.3.21 Zen, glibc 2.36, libm 5cedcc5d
 *
 * Exact mode gives the same bits for every split of the batch among machines of which this text is
 * the same. The C library is in it because exp, log, cos and pow of the initial values, the schedule,
 * the loss and the optimizer are its own, in variants that it chooses by processor: so what they give
 * is digested.
 *
 * Stored in checkpoints (/arithmetic), with all that a run had before it when it was resumed, and in
 * the run line of metrics.jsonl. */
#ifndef TUTTI_TRAIN_ARITHMETIC_H
#define TUTTI_TRAIN_ARITHMETIC_H

#include "tutti/base/status.h"
#include "tutti/base/text.h"
#include "tutti/train/plan.h"
#include "tutti/train/trainer.h"

void tt_arithmetic_text(const tt_blueprint *print, tt_text *out);

/* In exact mode: TT_EUSER unless all ranks have the same arithmetic. Collective. */
tt_code tt_arithmetic_agree(tt_trainer *trainer, tt_err *err);

/* The line, and behind it what went before, as a checkpoint stores it:
 *
 *     tutti 0.1.0, bf16 on avx2, ...; until step 20: tutti 0.1.0, bf16 on ref, ...
 */
void tt_arithmetic_history(const tt_trainer *trainer, tt_text *out);

/* Against what a checkpoint stores ("": nothing): `past` gets what tt_arithmetic_history will append,
 * `words` a sentence in exact mode when it was made by other arithmetic, or does not say by which. Both
 * texts are the caller's and empty. Local. */
tt_code tt_arithmetic_compare(const tt_trainer *trainer, const char *stored, const char *path,
                              tt_text *words, tt_text *past, tt_err *err);

/* After loading the checkpoint at `path`: remembers what it was made by, and warns in exact mode when
 * that is not the arithmetic of now. Collective. */
tt_code tt_arithmetic_resume(tt_trainer *trainer, const char *path, tt_err *err);

#endif
