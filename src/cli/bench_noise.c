/* bench_noise.c: a token file of random tokens of the whole vocabulary, for benches that train. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tutti/base/file.h"
#include "tutti/data/tokens.h"
#include "tutti/dist/share.h"

#include "cli/bench_impl.h"

static tt_code make_file(tt_noise *noise, int64_t vocab, int64_t tokens, tt_err *err)
{
    tt_code rc = TT_OK;
    const char *base = getenv("TMPDIR");
    noise->folder = tt_join(base && base[0] ? base : "/tmp", "tutti-bench-XXXXXX", err);
    if (!noise->folder) {
        return err->code;
    }
    if (!mkdtemp(noise->folder)) {
        rc = tt_fail(err, TT_EWORLD, "cannot make a folder like %s: %s", noise->folder,
                     strerror(errno));
        goto out;
    }
    noise->tokens = tt_join(noise->folder, "noise.h5", err);
    noise->run = tt_join(noise->folder, "run", err);
    if (!noise->tokens || !noise->run) {
        rc = err->code;
        goto out;
    }
    TT_TRY(tt_tokens_noise_file(noise->tokens, vocab, tokens, 1, err));
out:
    return rc;
}

/* Best effort: what is left is in the system's folder for temporary files. */
void tt_noise_close(tt_noise *noise)
{
    if (noise->tokens) {
        unlink(noise->tokens);
    }
    if (noise->run) {
        tt_err lost;
        char *lock = tt_join(noise->run, "lock", &lost);
        if (lock) {
            unlink(lock); /* of the trainer, closed or, where its files are open, unharmed */
        }
        free(lock);
        rmdir(noise->run);
    }
    if (noise->folder) {
        rmdir(noise->folder);
    }
    free(noise->folder);
    free(noise->tokens);
    free(noise->run);
    *noise = (tt_noise){0};
}

/* Paths of rank 0's folder into every rank's configuration. Collective. */
static tt_code share_paths(tt_bench *bench, const tt_noise *noise, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_text path = {0};
    tt_config *config = &bench->config;
    if (bench->world->rank == 0) {
        tt_text_add(&path, "%s", noise->folder);
    }
    TT_TRY(tt_share_text(bench->world, &path, err));
    if (strlen(path.data) + sizeof "/noise.h5" > sizeof config->data.train) { /* the same on all */
        rc = tt_fail(err, TT_EUSER, "TMPDIR: the path is longer than %zu bytes",
                     sizeof config->data.train - sizeof "/tutti-bench-XXXXXX/noise.h5");
        goto out;
    }
    snprintf(config->data.train, sizeof config->data.train, "%s/noise.h5", path.data);
    snprintf(config->run.dir, sizeof config->run.dir, "%s/run", path.data);
out:
    tt_text_free(&path);
    return rc;
}

tt_code tt_noise_open(tt_noise *noise, tt_bench *bench, tt_err *err)
{
    tt_shape shape;
    tt_code rc = tt_shape_resolve(&shape, &bench->config, 0, err);
    *noise = (tt_noise){0};
    if (rc == TT_OK && bench->world->rank == 0) {
        rc = make_file(noise, bench->config.model.vocab, bench->config.model.context * 64, err);
    }
    TT_TRY(tt_agree(bench->world, rc, err));
    TT_TRY(share_paths(bench, noise, err));
out:
    return rc;
}
