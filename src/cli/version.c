/* version.c: `tutti version`: what this binary is and what it found. */
#include <stdio.h>
#include <stdlib.h>

#include "tutti/ckpt/ckpt.h"
#include "tutti/kernels/kernels.h"
#include "tutti/version.h"

#include "cli/cli_impl.h"

int tt_cmd_version(int argc, char **argv)
{
    tt_code rc = TT_OK;
    tt_err err = {TT_OK, ""};
    tt_text text = {0};
    tt_ops ops, guarded;
    const char *isa[16];
    char mpi[256];
    (void)argc;
    (void)argv;
    TT_TRY(tt_kernels_select(&ops, &guarded, TT_BF16, getenv("TUTTI_ISA"), &err));
    const int isas = tt_kernels_isa_list(isa, 16);
    tt_mpi_version(mpi, sizeof mpi);
    tt_text_add(&text, "tutti %s (%s build, %s %s)\n", TUTTI_VERSION, TUTTI_CONFIG,
#if defined(__clang__)
                "clang",
#else
                "gcc",
#endif
                __VERSION__);
    tt_text_add(&text, "ISA   %s; this processor can do:", ops.isa);
    for (int i = 0; i < isas; i++) {
        tt_text_add(&text, " %s", isa[i]);
    }
    tt_text_add(&text, "\nMPI   %s\nHDF5  %s\nBLAS  %s\n", mpi, tt_ckpt_hdf5_version(),
                tt_kernels_blas());
    rc = tt_cli_print(&text, &err);
out:
    return tt_cli_end(NULL, rc, &err);
}
