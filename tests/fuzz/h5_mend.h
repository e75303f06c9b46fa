/* h5_mend.h: HDF5 files that are wrong, and yet whole in HDF5's eyes: what mutation needs to get past
 * checksums. */
#ifndef TT_H5_MEND_H
#define TT_H5_MEND_H

#include <stddef.h>
#include <stdint.h>

/* Gives every block of metadata that carries a checksum, wherever one seems to begin, the right one. */
void tt_h5_mend(unsigned char *data, size_t size);

/* One mutation of a file of `size` bytes in data[room]; returns the new size. Most are of
 * structure: fields that hold another field's value, a length or an address that is off; then
 * checksums are mended, mostly. */
size_t tt_h5_mutate(unsigned char *data, size_t size, size_t room, unsigned seed);

#endif
