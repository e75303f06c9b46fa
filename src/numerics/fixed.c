/* fixed.c: the unit of a batch; the argument is at the top of fixed.h. */
#include "tutti/numerics/fixed.h"

#include <assert.h>
#include <math.h>

#include "tutti/base/narrow.h"

/* The least k with 2^k >= n. */
static int log2_up(int64_t n)
{
    int k = 0;
    while (k < 63 && INT64_C(1) << k < n) {
        k++;
    }
    return k;
}

/* The least k with 2^k >= scale. */
static int scale_log2_up(float scale)
{
    int k;
    return frexpf(scale, &k) == 0.5f ? k - 1 : k;
}

tt_fixed tt_fixed_make(int64_t sequences, int64_t tokens, float scale)
{
    assert(sequences >= 1 && tokens >= 1 && scale > 0);
    const int s = log2_up(sequences), t = log2_up(tokens);
    const int total = TT_FIXED_TOTAL_BITS - TT_FIXED_MARGIN - s - t - 1;
    const int summand = TT_FIXED_BITS - TT_FIXED_MARGIN - t;
    const int shift = (total < summand ? total : summand) - scale_log2_up(scale);
    const tt_fixed fixed = {.shift = shift,
                            .most = ldexpf(scale, TT_FIXED_MARGIN),
                            .middle = ldexp(0x1.8p52, -shift),
                            .unit = ldexp(1, -shift)};
    assert(isfinite(tt_fixed_limit(&fixed, tokens)) && isnormal((float)fixed.unit));
    return fixed;
}
