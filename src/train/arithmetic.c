/* arithmetic.c: the line that names what the bits depend on. See arithmetic.h. */
#include "tutti/train/arithmetic.h"

#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "tutti/ckpt/ckpt.h"
#include "tutti/dist/share.h"
#include "tutti/kernels/kernels.h"
#include "tutti/numerics/digest.h"
#include "tutti/version.h"

/* Between an arithmetic and the one before it. */
#define AGE "; until step "

/* "OpenBLAS 0.3.21 Zen": the first two words of its configuration, and the kernels it chose. */
static void add_blas(tt_text *out)
{
    const char *config = tt_kernels_blas();
    size_t length = strcspn(config, " ");
    length += config[length] == ' ' ? 1 + strcspn(config + length + 1, " ") : 0;
    tt_text_add(out, ", matmuls by %.*s %s", (int)length, config, tt_kernels_blas_core());
}

/* What the library's functions give for arguments all over the range in which they are used: variants
 * of one version differ in about one result of 2000. */
static uint32_t libm_digest(void)
{
    enum { ARGUMENTS = 1 << 14, FUNCTIONS = 4 };
    uint64_t sum = 0;
    for (int i = 1; i <= ARGUMENTS; i++) {
        const double x = i * (8.0 / ARGUMENTS);
        const double value[FUNCTIONS] = {exp(-4 * x), log(x), cos(x), pow(0.95, 100 * x)};
        uint32_t bits[2 * FUNCTIONS];
        memcpy(bits, value, sizeof bits);
        sum += tt_digest32(bits, (int64_t)i * 2 * FUNCTIONS, 2 * FUNCTIONS);
    }
    return (uint32_t)(sum ^ sum >> 32);
}

static void add_libc(tt_text *out)
{
#ifdef __GLIBC__
    tt_text_add(out, ", glibc %s", gnu_get_libc_version());
#endif
    tt_text_add(out, ", libm %08" PRIx32, libm_digest());
}

void tt_arithmetic_text(const tt_blueprint *print, tt_text *out)
{
    const bool guarded = print->guarded.isa != NULL; /* guard changes no bit */
    bool blas = false;
    for (int i = 0; i < TT_OP_TOTAL; i++) {
        const char *from[] = {print->ops.from[i], print->wide_ops.ops.from[i]};
        for (int k = 0; k < 2; k++) {
            blas = blas || (from[k] && strcmp(from[k], "openblas") == 0);
        }
    }
    tt_text_add(out, "tutti %s, %s on %s", TUTTI_VERSION, print->config.precision.compute,
                guarded ? print->guarded.isa : print->ops.isa);
    if (blas) {
        add_blas(out);
    }
    add_libc(out);
}

void tt_arithmetic_history(const tt_trainer *t, tt_text *out)
{
    tt_arithmetic_text(&t->print, out);
    tt_text_add(out, "%s", t->past.data ? t->past.data : "");
}

tt_code tt_arithmetic_agree(tt_trainer *t, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_text text = {0};
    tt_err why = {TT_OK, ""};
    if (!t->print.config.run.exact) {
        goto out;
    }
    tt_arithmetic_text(&t->print, &text);
    rc = text.failed ? tt_fail(err, TT_EWORLD, "out of memory") : TT_OK;
    TT_TRY(tt_agree(t->world, rc, err));
    rc = tt_agree_text(t->world, "run.exact: arithmetic", text.data, &why);
    if (rc == TT_EUSER) {
        rc = tt_fail(err, rc,
                     "%.700s; give all ranks the same TUTTI_ISA (and OPENBLAS_CORETYPE for "
                     "products in fp32) and "
                     "the same libraries, or leave run.exact off",
                     why.text);
    } else if (rc != TT_OK) {
        *err = why;
    }
out:
    tt_text_free(&text);
    return rc;
}

tt_code tt_arithmetic_compare(const tt_trainer *t, const char *stored, const char *path,
                              tt_text *words, tt_text *past, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_text now = {0};
    const char *rest = strstr(stored, AGE);
    const size_t length = rest != NULL ? (size_t)(rest - stored) : strlen(stored);
    tt_arithmetic_text(&t->print, &now);
    const bool same = now.data && now.length == length && strncmp(stored, now.data, length) == 0;
    if (same) {
        tt_text_add(past, "%s", rest != NULL ? rest : "");
    } else {
        tt_text_add(past, AGE "%lld: %s", (long long)t->progress.step,
                    length > 0 ? stored : "not recorded");
    }
    if (!same && t->print.config.run.exact && length == 0) {
        tt_text_add(words,
                    "run.exact: %s does not say by which arithmetic it was made, now it is: %s. "
                    "Whether the first machine would have gone on with the same bits is not known",
                    path, now.data);
    } else if (!same && t->print.config.run.exact) {
        tt_text_add(words,
                    "run.exact: %s was made by other arithmetic (stored: %.*s; now: %s). From here "
                    "on every split of this run still gives the same bits, but not those with "
                    "which the first machine would have gone on; for these, give it the stored "
                    "arithmetic again (TUTTI_ISA)",
                    path, (int)length, stored, now.data);
    }
    if (now.failed || words->failed || past->failed) {
        rc = tt_fail(err, TT_EWORLD, "out of memory reading %s", path);
    }
    tt_text_free(&now);
    return rc;
}

tt_code tt_arithmetic_resume(tt_trainer *t, const char *path, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_text stored = {0}, words = {0}, past = {0};
    if (t->world->rank == 0) {
        rc = tt_ckpt_arithmetic(path, &stored, err);
        if (rc == TT_OK) {
            rc = tt_arithmetic_compare(t, stored.data ? stored.data : "", path, &words, &past, err);
        }
    }
    TT_TRY(tt_agree(t->world, rc, err));
    if (words.length > 0) {
        tt_warn(t->log, "%s", words.data);
    }
    TT_TRY(tt_share_text(t->world, &past, err));
    tt_text_free(&t->past);
    t->past = past;
    past = (tt_text){0};
out:
    tt_text_free(&stored);
    tt_text_free(&words);
    tt_text_free(&past);
    return rc;
}
