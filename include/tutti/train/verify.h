/* verify.h: do all ranks hold the same weights? A memory that errs, or a rank that takes another path,
 * would otherwise be learned from, and saved. Reads the weights; next: train/state.h. */
#ifndef TUTTI_TRAIN_VERIFY_H
#define TUTTI_TRAIN_VERIFY_H

#include "tutti/base/status.h"
#include "tutti/train/trainer.h"

/* TT_EWORLD on all ranks when they do not, after step number progress.step: names the ranks that differ
 * from the majority (without one, all), the first bucket that differs and the parameter in it.
 * Collective; counted in world->wire: one call of 16 bytes when all is well. */
tt_code tt_verify(tt_trainer *trainer, tt_err *err);

#endif
