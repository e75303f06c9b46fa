/* update.h: theta_r <- AdamW(theta_r, G_r): one update of the rank's shard.
 *
 * Reads the reduced gradient and train/optimizer.h; writes masters, m, v and the act weights of the
 * shard; next: dist/reduce.h (gather). */
#ifndef TUTTI_TRAIN_UPDATE_H
#define TUTTI_TRAIN_UPDATE_H

#include "tutti/train/trainer.h"

/* The update that is progress.updates. grad_scale multiplies every gradient first. Local; when a file
 * fails it ends early, and tt_optimizer_check says why. */
void tt_update_shard(tt_trainer *trainer, double lr, double grad_scale);

#endif
