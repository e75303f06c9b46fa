/* sound.h: may HDF5 be let near this file?
 *
 * HDF5 believes what a file says of itself: lengths, offsets, counts. One that lies makes it read
 * beyond its buffers, run in circles or ask for any amount of memory. So whoever opens a file calls
 * this first. It follows everything that HDF5 would follow for us, from the superblock to the last
 * link, and accepts only what it understands.
 *
 * Invariant: time and memory are bounded by the file's size: no block is looked at twice, none is
 * part of two things, no group has two names, and no data is claimed that the file does not store.
 * Data itself is not read. Where metadata has checksums they hold, so what was damaged by accident
 * is not taken for something foreign. */
#ifndef TUTTI_BASE_SOUND_H
#define TUTTI_BASE_SOUND_H

enum { TT_SOUND_WHY = 200 };

typedef enum tt_soundness {
    TT_SOUND,         /* HDF5 may open it */
    TT_SOUND_DAMAGED, /* no program made it so */
    TT_SOUND_UNREAD   /* it uses a part of HDF5's format that nothing of ours is kept in */
} tt_soundness;

/* The file at `path`, which must be a regular one. What is wrong, into why[TT_SOUND_WHY]: "the group at
 * byte 800: its list of links ends early". */
tt_soundness tt_sound_check(const char *path, char *why);

#endif
