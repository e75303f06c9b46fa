/* test_hooks.c: what a pass tells on its way: in the order of the walk, and true: before a stage is
 * entered nothing reads its weights, before its gradient begins nothing adds to it. */
#include "model_fixture.h"
#include "tutti/model/hooks.h"

enum { B = 2, T = 7, L = 4, MOST = 200 };

static const tt_shape shape = {
    .L = L, .H = 2, .G = 2, .D = 3, .C = 6, .F = 11, .T = 9, .V = 29, .vocab_used = 23};

typedef struct diary {
    int count;
    struct {
        char what;
        int stage;
    } told[MOST];
    fixture *f; /* NULL: of a walk, where nothing is computed */
    bool begun[L + 2];
} diary;

static void write_down(diary *d, char what, int stage)
{
    ck_assert_int_lt(d->count, MOST);
    d->told[d->count].what = what;
    d->told[d->count++].stage = stage;
}

static void entered(void *user, int stage)
{
    write_down(user, 'e', stage);
}

/* Nothing is lost to who clears the gradient now; that of a tied head is in stage 0's before. */
static void began(void *user, int stage)
{
    diary *d = user;
    write_down(d, 'b', stage);
    if (d->f != NULL && (stage > 0 || !d->f->shape.tied)) {
        const int64_t *end = d->f->params.stage_end;
        for (int64_t e = stage > 0 ? end[stage - 1] : 0; e < end[stage]; e++) {
            ck_assert_msg(d->f->gradient[e] == 0, "stage %d, element %lld", stage, (long long)e);
        }
    }
    ck_assert(!d->begun[stage]);
    d->begun[stage] = true;
}

static void ready(void *user, int stage)
{
    diary *d = user;
    write_down(d, 'r', stage);
    ck_assert(d->begun[stage]);
}

static tt_hooks hooks_of(diary *d)
{
    return (tt_hooks){.enter = entered, .grad_begin = began, .grad_ready = ready, .user = d};
}

static void check(const tt_shape *s, const tt_recompute *recompute)
{
    fixture f;
    diary walk = {0}, pass = {.f = &f};
    tt_loss loss = {0};
    fixture_open_all(&f, s, TT_FP32, "ref", B, T, true, NULL, recompute);
    const tt_hooks walked = hooks_of(&walk), passed = hooks_of(&pass);
    tt_hooks_walk(&walked, recompute, L, true);
    tt_model_train(f.model, f.token, f.target, f.sample, B, T, 7, 3, 1.0f, &loss, &passed);
    ck_assert_int_eq(walk.count, pass.count);
    for (int i = 0; i < walk.count; i++) {
        ck_assert_msg(walk.told[i].what == pass.told[i].what &&
                          walk.told[i].stage == pass.told[i].stage,
                      "%d: a walk tells %c %d, a pass %c %d", i, walk.told[i].what,
                      walk.told[i].stage, pass.told[i].what, pass.told[i].stage);
    }
    fixture_close(&f);
}

START_TEST(passes_tell_what_walks_tell)
{
    for (int tied = 0; tied < 2; tied++) {
        for (int kind = 0; kind < TT_RECOMPUTE_KINDS; kind++) {
            tt_shape s = shape;
            s.tied = tied;
            const tt_recompute r = tt_recompute_make((tt_recompute_kind)kind, L, 0, false);
            check(&s, &r);
        }
    }
}
END_TEST

START_TEST(a_pass_forward_enters_alone)
{
    fixture f;
    diary walk = {0}, pass = {.f = &f};
    tt_loss loss = {0};
    const tt_recompute none = tt_recompute_make(TT_RECOMPUTE_NONE, L, 0, false);
    fixture_open(&f, &shape, TT_FP32, "ref", B, T, true);
    const tt_hooks walked = hooks_of(&walk), passed = hooks_of(&pass);
    tt_hooks_walk(&walked, &none, L, false);
    tt_model_eval(f.model, f.token, f.target, B, T, &loss, &passed);
    ck_assert_int_eq(walk.count, L + 2);
    ck_assert_int_eq(pass.count, L + 2);
    for (int i = 0; i < L + 2; i++) {
        ck_assert(walk.told[i].what == 'e' && walk.told[i].stage == i);
        ck_assert(pass.told[i].what == 'e' && pass.told[i].stage == i);
    }
    fixture_close(&f);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("hooks");
    TCase *tests = tcase_create("hooks");
    tcase_add_test(tests, passes_tell_what_walks_tell);
    tcase_add_test(tests, a_pass_forward_enters_alone);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
