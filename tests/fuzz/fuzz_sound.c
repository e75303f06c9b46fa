/* fuzz_sound.c: any bytes as an HDF5 file: what base/sound.h lets through does HDF5 no harm. */
#include "fuzz_h5.h"
#include "h5_tour.h"
#include "tutti/base/sound.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[TT_SOUND_WHY];
    const char *path = fuzz_file(data, size);
    const tt_soundness verdict = tt_sound_check(path, why);
    if ((verdict == TT_SOUND) != (why[0] == '\0')) {
        abort();
    }
    if (verdict == TT_SOUND) {
        tour(path);
        fuzz_closed();
    }
    fuzz_forget(path);
    return 0;
}
