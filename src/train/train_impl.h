/* train_impl.h: what the files of the train layer share among themselves. */
#ifndef TUTTI_TRAIN_IMPL_H
#define TUTTI_TRAIN_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/base/status.h"
#include "tutti/train/trainer.h"

/* Element `index` of a vector of act elements. */
static inline void *tt_act_at(void *vector, int64_t index, size_t act_bytes)
{
    return (unsigned char *)vector + (size_t)index * act_bytes;
}

/* Moves what an earlier run left in run.dir into a new folder below it (run.resume: never). Local. */
tt_code tt_run_set_aside(const char *dir, tt_log *log, tt_err *err);

#endif
