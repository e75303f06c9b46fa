/* choices.c: the ways to recompute, against a given memory. See choices.h.
 *
 * Owns nothing. Reads plans of other micro-batches; next: ledger.c. */
#include "tutti/train/choices.h"

#include <stdio.h>
#include <string.h>

#include "tutti/base/narrow.h"

static const char *const names[TT_CHOICES] = {"none", "selective", "sqrt", "block"};

/* Bytes of a rank with this micro-batch. */
static tt_code bytes_of(const tt_blueprint *print, const char *name, int64_t micro,
                        size_t group[TT_GROUPS], tt_err *err)
{
    tt_code rc = TT_OK;
    tt_config config = print->config;
    tt_blueprint other = {.act_bytes = 0};
    char recompute[64], *override[] = {recompute};
    snprintf(recompute, sizeof recompute, "memory.recompute=none%.0s", name);
    config.batch.micro = micro;
    config.batch.accumulate = 1;
    config.batch.sequences = tt_mul(micro, print->plan.ranks);
    TT_TRY(tt_config_load(&config, NULL, 1, override, err));
    TT_TRY(tt_blueprint_make(&other, &config, print->shape.vocab_used, 0, print->plan.ranks,
                             print->plan.threads, print->ops.isa, err));
    tt_group_bytes(other.plan.bytes, other.plan.libraries, group);
out:
    tt_blueprint_free(&other);
    return rc;
}

static tt_code fits(const tt_blueprint *print, const char *name, int64_t micro, int64_t limit,
                    bool *answer, tt_err *err)
{
    size_t group[TT_GROUPS];
    const tt_code rc = bytes_of(print, name, micro, group, err);
    *answer = rc == TT_OK && tt_count(group[TT_GROUP_TOTAL]) <= limit;
    return rc;
}

/* Doubles until it does not fit, then halves the gap: memory only grows with the micro-batch. */
static tt_code find_largest(const tt_blueprint *print, const char *name, int64_t limit,
                            int64_t *largest, tt_err *err)
{
    tt_code rc = TT_OK;
    int64_t good = 0, bad = 1; /* good fits, bad does not */
    bool yes = false;
    TT_TRY(fits(print, name, bad, limit, &yes, err));
    while (yes && bad < TT_LARGEST_MICRO) {
        good = bad;
        bad = tt_min(2 * bad, TT_LARGEST_MICRO);
        TT_TRY(fits(print, name, bad, limit, &yes, err));
    }
    if (yes) {
        good = bad;
    }
    while (bad - good > 1) {
        const int64_t middle = good + (bad - good) / 2;
        TT_TRY(fits(print, name, middle, limit, &yes, err));
        *(yes ? &good : &bad) = middle;
    }
    *largest = good;
out:
    return rc;
}

tt_code tt_choices_make(tt_choice choice[TT_CHOICES], const tt_blueprint *print, int64_t limit,
                        const tt_price *price, tt_err *err)
{
    tt_code rc = TT_OK;
    (void)price;
    for (int i = 0; i < TT_CHOICES; i++) {
        tt_choice *c = &choice[i];
        *c = (tt_choice){.name = names[i]};
        TT_TRY(bytes_of(print, c->name, print->split.micro, c->bytes, err));
        c->fits = tt_count(c->bytes[TT_GROUP_TOTAL]) <= limit;
        TT_TRY(find_largest(print, c->name, limit, &c->largest, err));
    }
out:
    return rc;
}
