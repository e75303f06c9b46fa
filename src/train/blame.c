/* blame.c: what a rank sees of its own gradient before others' are added to it, and who saw it first.
 * See tutti/train/blame.h. */
#include "tutti/train/blame.h"

#include <math.h>

#include "tutti/base/narrow.h"
#include "tutti/numerics/format.h"

#include "train/train_impl.h"

void tt_blame_begin(tt_trainer *t)
{
    t->suspect = (tt_suspect){.at = -1, .param = -1};
}

/* ---- this rank's own gradient ---- */

/* One comparison of integers an element, so that it goes at the speed of memory. */
static bool all_finite(const float *x, int64_t count, int threads)
{
    enum { BLOCK = 4096 };
    int bad = 0;
#pragma omp parallel for num_threads(threads) reduction(| : bad) if (count > 64 * BLOCK)
    for (int64_t first = 0; first < count; first += BLOCK) {
        const int64_t end = tt_min(first + BLOCK, count);
        int here = 0;
        for (int64_t i = first; i < end; i++) {
            here |= (tt_bits_of_f32(x[i]) & 0x7fffffffu) >= 0x7f800000u;
        }
        bad |= here;
    }
    return bad == 0;
}

/* Where the gradient of a parameter is, as this rank holds it now. */
static const float *held(const tt_trainer *t, const tt_param *param)
{
    return t->gradient.sum + (param->offset - t->print.gradient_ring.shift[param->stage]);
}

/* The last parameter of the stage whose gradient is not finite, which is the one backward came to first;
 * -1: none. `whole`: every element. */
static int look_at(const tt_trainer *t, int stage, bool whole)
{
    const tt_params *params = &t->print.params;
    for (int p = params->count - 1; p >= 0; p--) {
        const tt_param *param = &params->param[p];
        const bool all = whole || param->dims == 1 || param->role == TT_WPE;
        if (param->stage == stage &&
            !all_finite(held(t, param), all ? param->count : param->dim[1], t->ctx.threads)) {
            return p;
        }
    }
    return -1;
}

void tt_blame_look(tt_trainer *t, int stage, bool goes)
{
    tt_suspect *s = &t->suspect;
    const bool summed = s->micro > 0 && !t->print.slices; /* over micro-batches */
    if (s->at >= 0 || t->gradient.fixed != NULL) {
        return;
    }
    tt_seen seen = TT_SEEN_GRADIENT;
    int param = look_at(t, stage, false);
    if (param < 0 && goes && t->world->size > 1) { /* one rank's own is the sum, which is counted */
        seen = summed ? TT_SEEN_SUM : TT_SEEN_GRADIENT;
        param = look_at(t, stage, true);
    }
    if (param >= 0) {
        *s = (tt_suspect){.micro = s->micro, .at = s->micro, .seen = seen, .param = param};
    }
}

/* The last parameter that has lost summands; -1: none. */
static int lost(const tt_trainer *t)
{
    int p = t->gradient.fixed != NULL ? t->print.params.count - 1 : -1;
    while (p >= 0 && t->gradient.lost[p] == 0) {
        p--;
    }
    return p;
}

void tt_blame_pass(tt_trainer *t, const tt_loss *loss)
{
    tt_suspect *s = &t->suspect;
    if (s->at < 0 && lost(t) >= 0) {
        s->at = s->micro;
        s->seen = TT_SEEN_GRADIENT;
        s->param = lost(t);
    }
    if (loss->sum.nonfinite > 0 &&
        (s->at < 0 || s->at == s->micro)) { /* what gradients follow from */
        s->at = s->micro;
        s->seen = TT_SEEN_LOSS;
        s->param = -1;
    }
    s->micro++;
}

/* ---- all ranks ---- */

enum { KINDS = TT_SEEN_SUM + 1 };

/* A suspect as a number: the smaller, the earlier. It is a whole number below 2^53: micro-batches times
 * ranks are at most sequences, and a model has some thousand parameters. */
static double code_of(const tt_trainer *t, const tt_suspect *s)
{
    const int64_t turn = s->at * t->world->size + t->world->rank;
    const int64_t params = t->print.params.count + 1;
    return s->at < 0 ? INFINITY
                     : (double)((turn * KINDS + (int64_t)s->seen) * params + s->param + 1);
}

tt_code tt_blame_find(tt_trainer *t, int last, tt_record *record, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_params *params = &t->print.params;
    const int64_t parts = params->count + 1, K = t->print.split.accumulate;
    tt_suspect *s = &t->suspect;
    tt_blame *blame = &record->blame;
    if (s->at < 0 && t->world->size == 1) {
        *s = (tt_suspect){
            .at = K - 1, .seen = K > 1 ? TT_SEEN_SUM : TT_SEEN_GRADIENT, .param = last};
    }
    double most[2] = {last, -code_of(t, s)};
    TT_TRY(tt_max_f64(t->world, most, 2, err));
    *blame = (tt_blame){.bad = true, .rank = -1};
    if (most[0] >= 0) {
        record->nonfinite_in = params->param[(int)most[0]].name;
        blame->tensor = record->nonfinite_in;
    }
    if (!isinf(most[1])) {
        const int64_t code = (int64_t)-most[1], turn = code / parts / KINDS;
        const tt_seen seen = (tt_seen)(code / parts % KINDS);
        const int param = (int)(code % parts) - 1;
        blame->rank = (int)(turn % t->world->size);
        blame->last = turn / t->world->size;
        blame->first = seen == TT_SEEN_SUM ? 0 : blame->last;
        blame->in_loss = seen == TT_SEEN_LOSS;
        blame->tensor = param >= 0 ? params->param[param].name : NULL;
    }
out:
    return rc;
}

/* ---- words ---- */

/* The first global sample of micro-batch k of the rank that is blamed. */
static int64_t first_sample(const tt_trainer *t, const tt_record *record, int64_t k)
{
    const tt_split *split = &t->print.split;
    return (record->step - 1) * split->sequences +
           (k * split->ranks + record->blame.rank) * split->micro;
}

void tt_blame_text(const tt_trainer *t, const tt_record *record, tt_text *out)
{
    enum { SHOWN = 8 };
    const tt_blame *b = &record->blame;
    const tt_split *split = &t->print.split;
    const long long K = split->accumulate, B = split->micro;
    if (b->rank < 0) {
        tt_text_add(out, "on no rank before the sum over ranks");
        return;
    }
    tt_text_add(out, "first on rank %d, ", b->rank);
    if (b->first == b->last) {
        tt_text_add(out, "micro-batch %lld of %lld, ", (long long)b->last + 1, K);
    } else {
        tt_text_add(out, "in one of micro-batches 1 to %lld of %lld, ", (long long)b->last + 1, K);
    }
    tt_text_add(out, b->first == b->last && B == 1 ? "sample" : "samples");
    for (int64_t k = b->first; k <= b->last && k < b->first + SHOWN; k++) {
        const long long first = first_sample(t, record, k);
        tt_text_add(out, "%s %lld", k > b->first ? "," : "", first);
        if (B > 1) {
            tt_text_add(out, " to %lld", first + B - 1);
        }
    }
    tt_text_add(out, b->last - b->first >= SHOWN ? ", .." : "");
    if (b->in_loss && isfinite(record->loss)) {
        tt_text_add(out, ", in the loss");
    } else if (!b->in_loss && (!isfinite(record->loss) || b->tensor != record->nonfinite_in)) {
        tt_text_add(out, ", in the gradient of %s", b->tensor);
    }
}

/* "key": [..], of every sample: its number, or the window or document that it is. */
static void add_samples(const tt_trainer *t, const tt_record *record, const char *key, bool element,
                        tt_text *line)
{
    const tt_blame *b = &record->blame;
    const char *between = "";
    tt_text_add(line, "\"%s\": [", key);
    for (int64_t k = b->first; k <= b->last && b->rank >= 0; k++) {
        const int64_t first = first_sample(t, record, k);
        for (int64_t i = first; i < first + t->print.split.micro; i++) {
            tt_text_add(line, "%s%lld", between,
                        (long long)(element ? tt_sampler_element(&t->sampler, i) : i));
            between = ", ";
        }
    }
    tt_text_add(line, "]");
}

/* "key": number, or null. */
static void add_or_null(tt_text *line, const char *key, bool known, int64_t number)
{
    tt_text_add(line, "\"%s\": ", key);
    if (known) {
        tt_text_add(line, "%lld, ", (long long)number);
    } else {
        tt_text_add(line, "null, ");
    }
}

void tt_blame_line(const tt_trainer *t, const tt_record *record, tt_text *line)
{
    const tt_blame *b = &record->blame;
    tt_text_add(line, "{\"step\": %lld, ", (long long)record->step);
    add_or_null(line, "rank", b->rank >= 0, b->rank);
    add_or_null(line, "micro", b->rank >= 0 && b->first == b->last, b->last + 1);
    tt_text_add(line, "\"in\": \"%s\", \"tensor\": ",
                b->rank < 0  ? "sum"
                : b->in_loss ? "loss"
                             : "gradient");
    if (b->tensor != NULL) {
        tt_text_add_json(line, b->tensor);
    } else {
        tt_text_add(line, "null");
    }
    tt_text_add(line, ", ");
    add_samples(t, record, "samples", false, line);
    tt_text_add(line, ", ");
    add_samples(t, record, "elements", true, line);
    tt_text_add(line, "}\n");
}
