/* test_look.c: what a pass shows of what it writes: all of it, in order, before anything reads it; and
 * showing changes nothing. */
#include "model_fixture.h"
#include "tutti/model/hooks.h"
#include "tutti/model/look.h"

enum { B = 2, T = 7, L = 3 };
/* Shown of a block: parameters; outputs and the input of GELU; gradients of inputs, of parameters. */
enum { OF_BLOCK = 12 + 8 + 7 + 12, OF_ENDS = 2 + 3 + 1 + 2 + 2 + 3 + 2 };

static const tt_shape shape = {.L = L,
                               .H = 2,
                               .G = 2,
                               .D = 3,
                               .C = 6,
                               .F = 11,
                               .T = 9,
                               .V = 29,
                               .vocab_used = 23,
                               .tied = true};

typedef struct looker {
    int64_t count, poisoned; /* shown so far; number `poisoned` is spoilt */
    float value;             /* with this */
    int64_t met, element;    /* the first that was not finite, where; -1 */
    tt_wrote wrote;          /* that */
    tt_wrote_bad bad;
} looker;

/* An element of the first row, which all later tokens depend on. */
static int64_t middle(const tt_wrote *wrote)
{
    return wrote->columns > 1 ? wrote->columns / 2 : wrote->rows / 2;
}

static void spoil(const tt_wrote *wrote, float value)
{
    if (wrote->sum != NULL) {
        ((float *)(uintptr_t)wrote->sum)[middle(wrote)] = value; /* the fixture's */
    } else if (wrote->act != NULL && tt_formats[wrote->format].bytes == sizeof(float)) {
        ((float *)wrote->act)[middle(wrote)] = value;
    } else if (wrote->act != NULL) {
        ((uint16_t *)wrote->act)[middle(wrote)] = (uint16_t)tt_format_code(wrote->format, value);
    }
}

static void look(void *user, const tt_wrote *wrote)
{
    looker *l = user;
    if (l->count == l->poisoned) {
        spoil(wrote, l->value);
    }
    const tt_wrote_bad bad = tt_wrote_scan(wrote, 1 + (l->count == l->poisoned));
    if (l->met < 0 && bad.inf + bad.nan + bad.other > 0) {
        l->met = l->count;
        l->element = bad.first;
        l->wrote = *wrote;
        l->bad = bad;
    }
    l->count++;
}

/* A pass from an empty gradient; `l` NULL: nobody looks. */
static tt_loss pass(fixture *f, looker *l)
{
    const tt_hooks hooks = {.wrote = look, .user = l};
    tt_loss loss = {0};
    memset(f->gradient, 0, tt_bytes(f->params.total, sizeof *f->gradient));
    fixture_publish(f);
    tt_model_train(f->model, f->token, f->target, f->sample, B, T, 7, 3, 1.0f, &loss,
                   l != NULL ? &hooks : NULL);
    return loss;
}

static bool gradient_is_finite(const fixture *f)
{
    bool ok = true;
    for (int64_t i = 0; i < f->params.total; i++) {
        ok = ok && isfinite(f->gradient[i]);
    }
    return ok;
}

static const tt_format formats[] = {TT_FP32, TT_BF16, TT_FP16};

START_TEST(looking_changes_no_bit)
{
    for (int kind = 0; kind < TT_RECOMPUTE_KINDS; kind++) {
        fixture f, g;
        const tt_recompute r = tt_recompute_make((tt_recompute_kind)kind, L, 0, false);
        looker l = {.poisoned = -1, .met = -1};
        fixture_open_all(&f, &shape, formats[_i], "ref", B, T, true, NULL, &r);
        fixture_open_all(&g, &shape, formats[_i], "ref", B, T, true, NULL, &r);
        const tt_loss seen = pass(&f, &l), alone = pass(&g, NULL);
        ck_assert(memcmp(&seen, &alone, sizeof seen) == 0);
        ck_assert_mem_eq(f.gradient, g.gradient, tt_bytes(f.params.total, sizeof(float)));
        ck_assert_int_eq(l.met, -1);
        if (!r.selective && r.blocks == 0) {
            ck_assert_int_eq(l.count, OF_ENDS + L * OF_BLOCK);
        } else { /* and what was made again */
            ck_assert_int_gt(l.count, OF_ENDS + L * OF_BLOCK);
        }
        fixture_close(&f);
        fixture_close(&g);
    }
}
END_TEST

/* Whatever is spoilt as it is shown is met there, and what comes after reads it. */
START_TEST(what_is_shown_is_what_is_read)
{
    const tt_format format = formats[_i % 3];
    const tt_recompute r = tt_recompute_make((tt_recompute_kind)_i, L, 0, false);
    fixture f;
    looker all = {.poisoned = -1, .met = -1};
    fixture_open_all(&f, &shape, format, "ref", B, T, true, NULL, &r);
    pass(&f, &all);
    for (int64_t i = 0; i < all.count; i++) {
        looker l = {.poisoned = i, .met = -1, .value = i % 2 == 0 ? NAN : INFINITY};
        const tt_loss loss = pass(&f, &l);
        const bool finite = gradient_is_finite(&f) && loss.sum.nonfinite == 0;
        ck_assert_int_eq(l.count, all.count);
        if (l.met < 0) { /* the loss alone cannot be spoilt here */
            ck_assert_msg(finite, "look %lld of %lld", (long long)i, (long long)all.count);
            continue;
        }
        ck_assert_msg(l.met == i && l.element == middle(&l.wrote), "look %lld met at %lld, %lld",
                      (long long)i, (long long)l.met, (long long)l.element);
        ck_assert_int_eq(l.bad.nan, i % 2 == 0);
        ck_assert_int_eq(l.bad.inf, i % 2 == 1);
        /* Backward alone reads what comes before GELU: there its slope at infinity is finite, and a
         * block that goes forward again reads what it made then. */
        const bool unread = l.wrote.kind == TT_WROTE_ACTIVATION &&
                            strcmp(l.wrote.tensor, "fc") == 0 &&
                            (isinf(l.value) || (!l.wrote.again && r.blocks > 0));
        /* Nor are matrices that are packed by then. */
        const bool packed = l.wrote.kind == TT_WROTE_WEIGHT && f.packed.used > 0;
        ck_assert_msg(!finite || unread || packed,
                      "look %lld: %s of stage %d, kind %d, is not read", (long long)i,
                      l.wrote.tensor, l.wrote.stage, l.wrote.kind);
    }
    fixture_close(&f);
}
END_TEST

/* Tensors and layers are named as they are elsewhere, weights before they are read. */
START_TEST(names_and_kinds)
{
    static const struct {
        int64_t number;
        tt_wrote_kind kind;
        int stage;
        tt_op_row layer;
        const char *tensor;
    } wanted[] = {
        {0, TT_WROTE_WEIGHT, 0, TT_ROW_EMBED, "wte"},
        {1, TT_WROTE_WEIGHT, 0, TT_ROW_EMBED, "wpe"},
        {2, TT_WROTE_ACTIVATION, 0, TT_ROW_EMBED, "x"},
        {3, TT_WROTE_WEIGHT, 1, TT_ROW_NORM, "ln_1.weight"},
        {14, TT_WROTE_WEIGHT, 1, TT_ROW_DOWN, "mlp.proj.bias"},
        {15, TT_WROTE_ACTIVATION, 1, TT_ROW_NORM, "norm_1"},
        {17, TT_WROTE_ACTIVATION, 1, TT_ROW_ATTENTION, "attention"},
        {20, TT_WROTE_ACTIVATION, 1, TT_ROW_FC, "fc"},
        {21, TT_WROTE_ACTIVATION, 1, TT_ROW_FC, "gelu"},
        {22, TT_WROTE_ACTIVATION, 1, TT_ROW_DOWN, "x"},
        {3 + 20 * L + 2, TT_WROTE_WEIGHT, L + 1, TT_ROW_HEAD, "wte"},
        {3 + 20 * L + 3, TT_WROTE_ACTIVATION, L + 1, TT_ROW_NORM, "norm_f"},
        {3 + 20 * L + 5, TT_WROTE_GRADIENT, L + 1, TT_ROW_HEAD, "norm_f"},
        {3 + 20 * L + 6, TT_WROTE_SUM, L + 1, TT_ROW_HEAD, "wte"},
        {3 + 20 * L + 7, TT_WROTE_GRADIENT, L + 1, TT_ROW_NORM, "x"},
        {3 + 20 * L + 10, TT_WROTE_GRADIENT, L, TT_ROW_DOWN, "fc"},
        {3 + 20 * L + 11, TT_WROTE_SUM, L, TT_ROW_DOWN, "mlp.proj.weight"},
        {OF_ENDS + L * OF_BLOCK - 1, TT_WROTE_SUM, 0, TT_ROW_EMBED, "wpe"},
    };
    fixture f;
    fixture_open(&f, &shape, TT_FP32, "ref", B, T, true);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        looker l = {.poisoned = wanted[i].number, .met = -1, .value = NAN};
        pass(&f, &l);
        ck_assert_int_eq(l.met, wanted[i].number);
        ck_assert_msg(l.wrote.kind == wanted[i].kind && l.wrote.stage == wanted[i].stage &&
                          l.wrote.layer == wanted[i].layer &&
                          strcmp(l.wrote.tensor, wanted[i].tensor) == 0,
                      "%lld is %s of stage %d, layer %d, kind %d", (long long)wanted[i].number,
                      l.wrote.tensor, l.wrote.stage, l.wrote.layer, l.wrote.kind);
    }
    fixture_close(&f);
}
END_TEST

/* A loss that is not finite is shown as one, of as many tokens. */
START_TEST(the_loss)
{
    fixture f;
    looker l = {.poisoned = -1, .met = -1};
    tt_loss loss = {0};
    fixture_open(&f, &shape, TT_FP32, "ref", B, T, false);
    const tt_hooks hooks = {.wrote = look, .user = &l};
    const int64_t last = f.params.stage_end[L] + 1; /* of the final norm's gain */
    f.master[last] = 3e38f;
    f.master[last + 1] = 3e38f;
    fixture_publish(&f);
    tt_model_eval(f.model, f.token, f.target, B, T, &loss, &hooks);
    ck_assert_int_gt(loss.sum.nonfinite, 0);
    ck_assert(l.met >= 0 && l.wrote.kind <= TT_WROTE_LOSS);
    if (l.wrote.kind == TT_WROTE_LOSS) {
        ck_assert_str_eq(l.wrote.tensor, "loss");
        ck_assert_int_eq(l.bad.other, loss.sum.nonfinite);
    }
    fixture_close(&f);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("look");
    TCase *tests = tcase_create("look");
    tcase_add_loop_test(tests, looking_changes_no_bit, 0, 3);
    tcase_add_loop_test(tests, what_is_shown_is_what_is_read, 0, TT_RECOMPUTE_KINDS);
    tcase_add_test(tests, names_and_kinds);
    tcase_add_test(tests, the_loss);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
