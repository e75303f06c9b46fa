/* fuzz_h5.h: what the targets that read HDF5 files share: mutation that HDF5's checksums do not
 * stop, and a count of what is left open. */
#ifndef TT_FUZZ_H5_H
#define TT_FUZZ_H5_H

#include <hdf5.h>

#include "fuzz.h"
#include "h5_mend.h"

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned int seed)
{
    return seed % 32 == 0 ? LLVMFuzzerMutate(data, size, room)
                          : tt_h5_mutate(data, size, room, seed);
}

/* Nothing stays open, whatever the file was: HDF5 would keep it in memory to the end. */
static inline void fuzz_closed(void)
{
    const ssize_t open = H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL);
    if (open != 0) {
        fprintf(stderr, "%d of HDF5's objects are left open\n", (int)open);
        abort();
    }
}

#endif
