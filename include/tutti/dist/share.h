/* share.h: what rank 0 found out, told to all: files are looked for by one rank, because file systems
 * may show different ranks different things. */
#ifndef TUTTI_DIST_SHARE_H
#define TUTTI_DIST_SHARE_H

#include "tutti/base/status.h"
#include "tutti/base/text.h"
#include "tutti/dist/world.h"

/* Rank 0's text (may be empty) into `text` of every other rank, which the caller owns and which must
 * be empty there. Collective. */
tt_code tt_share_text(tt_world *world, tt_text *text, tt_err *err);

#endif
