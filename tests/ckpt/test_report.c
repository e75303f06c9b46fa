/* test_report.c: info, verify and diff say what is so. */
#include <sys/socket.h>
#include <sys/un.h>

#include "ckpt_test.h"

static folder dir;
static tt_err err;

static void set_up(void)
{
    dir = folder_new();
}

static void tear_down(void)
{
    folder_free(&dir);
}

START_TEST(info_says_what_is_there)
{
    const char *path = in_folder(&dir, "step-00000100.h5");
    fixture *f = fixture_new(CUT_WHOLE, 0, 1);
    tt_text out = {0};
    fill_values(f, 1);
    f->state.arithmetic = "sums on an abacus, with forty-one beads to a wire";
    ck_assert_int_eq(tt_ckpt_save(NULL, path, &f->state, NULL, 0, &err), TT_OK);
    ck_assert_msg(tt_ckpt_info(path, &out, &err) == TT_OK, "%s", err.text);
    static const char *const words[] = {
        "step-00000100.h5",
        "tutti-checkpoint-1",
        "state/step               100\n",
        "state/tokens_seen        81985529216486895\n",
        "state/loss_scale         0.1",
        "config                   3 keys\n",
        "tokenizer                bytes\n",
        "arithmetic               sums on an abacus, with forty-one beads to a wire\n",
        "params                            5             8321",
        "adam_m                            2             7870",
        "adam_v                            2              260",
        "params/h.0.ln_1.weight              [257]            257  ",
        "params/wte                       [61,129]           7869  ",
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        ck_assert_msg(strstr(out.data, words[i]) != NULL, "%s is not in\n%s", words[i], out.data);
    }
    /* In the order of the table, not of the letters. */
    ck_assert(strstr(out.data, "params/wte") < strstr(out.data, "params/h.0.ln_1"));
    tt_text_free(&out);
    ck_assert_int_eq(tt_ckpt_verify(path, &out, &err), TT_OK);
    ck_assert_str_eq(out.data, "OK       9 tensors, 10 scalars and texts match their digests\n");
    tt_text_free(&out);
    free(f);
}
END_TEST

START_TEST(not_checkpoints)
{
    tt_text out = {0};
    tt_group_diff group[4];
    bool same;
    tt_first_diff first;
    int groups;
    const char *path = in_folder(&dir, "notes.h5");
    ck_assert_int_eq(tt_ckpt_info(path, &out, &err), TT_EUSER);
    ck_assert_int_eq(tt_ckpt_verify(path, &out, &err), TT_EUSER);
    ck_assert_int_eq(tt_ckpt_texts(path, &out, &out, &err), TT_EUSER);
    ck_assert_int_eq(tt_ckpt_diff(path, path, &same, group, 4, &groups, &first, &err), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, "notes.h5 does not exist"));
    spill(path, "notes", 5);
    ck_assert_int_eq(tt_ckpt_info(path, &out, &err), TT_EUSER);
    ck_assert_int_eq(tt_ckpt_verify(path, &out, &err), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, "notes.h5 is not a checkpoint"));
    tt_text_free(&out);
}
END_TEST

static void not_regular(const char *path)
{
    tt_text out = {0};
    tt_group_diff group[4];
    bool same;
    tt_first_diff first;
    int groups;
    ck_assert_int_eq(tt_ckpt_info(path, &out, &err), TT_EUSER);
    ck_assert_int_eq(tt_ckpt_verify(path, &out, &err), TT_EUSER);
    ck_assert_int_eq(tt_ckpt_diff(path, path, &same, group, 4, &groups, &first, &err), TT_EUSER);
    ck_assert_int_eq(tt_ckpt_texts(path, &out, &out, &err), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, path));
    ck_assert_ptr_nonnull(strstr(err.text, "it is not a regular file"));
    tt_text_free(&out);
}

/* Pipes and sockets would keep whoever opens them waiting; nobody is at the other end. */
START_TEST(only_regular_files)
{
    const char *path = in_folder(&dir, "step-4.h5");
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    fixture *f = fixture_new(CUT_WHOLE, 0, 1);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    not_regular(path);
    ck_assert_int_eq(tt_ckpt_load(NULL, path, &f->state, true, &err), TT_EUSER);
    ck_assert_int_eq(tt_ckpt_load(NULL, path, &f->state, false, &err), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, "it is not a regular file"));
    ck_assert_int_eq(unlink(path), 0);

    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert_int_ge(listener, 0);
    if (strlen(path) < sizeof name.sun_path) {
        memcpy(name.sun_path, path, strlen(path) + 1);
        ck_assert_int_eq(bind(listener, (const struct sockaddr *)&name, sizeof name), 0);
        not_regular(path);
    }
    close(listener);
    not_regular("/dev/zero");
    not_regular(dir.path);
    free(f);
}
END_TEST

/* --- diff ------------------------------------------------------------------------------------- */

/* Two tensors and two scalars. */
typedef struct pair {
    float a[4], b[6];
    int64_t step;
    double scale;
    bool coded; /* with what FP8 keeps */
} pair;

static const pair base = {.a = {1, 2, -4, 0}, .b = {0.5f, 0, 0, 0, 0, 3}, .step = 7, .scale = 2};

static void save_pair(const char *name, pair p)
{
    float amax[3] = {1, 2, 3};
    tt_piece piece[3] = {
        {.count = 4, .data = p.a}, {.count = 6, .data = p.b}, {.count = 3, .data = amax}};
    tt_tensor_row row[3] = {
        {.name = "params/a", .dims = 1, .dim = {4}, .pieces = 1, .piece = &piece[0]},
        {.name = "params/b", .dims = 2, .dim = {2, 3}, .pieces = 1, .piece = &piece[1]},
        {.name = "fp8/amax", .dims = 1, .dim = {3}, .pieces = 1, .piece = &piece[2]}};
    tt_scalar_row scalar[2] = {{.name = "step", .i64 = &p.step},
                               {.name = "scale", .f64 = &p.scale}};
    tt_state state = {
        .tensors = p.coded ? 3 : 2, .scalars = 2, .tensor = row, .scalar = scalar, .config = name};
    tt_code rc = tt_ckpt_save(NULL, in_folder(&dir, name), &state, NULL, 0, &err);
    ck_assert_msg(rc == TT_OK, "%s", err.text);
}

/* Diffs base against p: groups "params" and "state". */
static bool diff_pair_at(pair p, tt_group_diff group[2], tt_first_diff *first)
{
    char a[640];
    bool same = false;
    int groups = 0;
    save_pair("a.h5", base);
    save_pair("b.h5", p);
    snprintf(a, sizeof a, "%s", in_folder(&dir, "a.h5"));
    tt_code rc = tt_ckpt_diff(a, in_folder(&dir, "b.h5"), &same, group, 2, &groups, first, &err);
    ck_assert_msg(rc == TT_OK, "%s", err.text);
    ck_assert_int_eq(groups, 2);
    ck_assert_str_eq(group[0].group, "params");
    ck_assert_str_eq(group[1].group, "state");
    return same;
}

static bool diff_pair(pair p, tt_group_diff group[2])
{
    tt_first_diff first;
    return diff_pair_at(p, group, &first);
}

/* Where the files part: the first tensor in the file's order, the first element in the tensor's. */
START_TEST(diff_names_the_first)
{
    tt_group_diff g[2];
    tt_first_diff first;
    pair p = base;
    ck_assert(diff_pair_at(p, g, &first));
    ck_assert_str_eq(first.path, "");

    p.step = 8;
    ck_assert(!diff_pair_at(p, g, &first));
    ck_assert_str_eq(first.path, "state/step");
    ck_assert_int_eq(first.dims, 0);
    ck_assert_str_eq(first.value[0], "7");
    ck_assert_str_eq(first.value[1], "8");

    p.b[5] = 3.5f;  /* a large difference behind ... */
    p.b[4] = -0.0f; /* ... one that is none but in the bits */
    ck_assert(!diff_pair_at(p, g, &first));
    ck_assert_str_eq(first.path, "params/b");
    ck_assert_int_eq(first.dims, 2);
    ck_assert_int_eq(first.at[0], 1);
    ck_assert_int_eq(first.at[1], 1);
    ck_assert_str_eq(first.value[0], "0");
    ck_assert_str_eq(first.value[1], "-0");

    p.a[1] = nextafterf(2, 3); /* nine digits tell neighbours apart */
    ck_assert(!diff_pair_at(p, g, &first));
    ck_assert_str_eq(first.path, "params/a");
    ck_assert_int_eq(first.dims, 1);
    ck_assert_int_eq(first.at[0], 1);
    ck_assert_str_eq(first.value[0], "2");
    ck_assert_str_eq(first.value[1], "2.00000024");

    uint32_t nan = 0x7fc00001;
    memcpy(&p.a[0], &nan, sizeof nan);
    ck_assert(!diff_pair_at(p, g, &first));
    ck_assert_int_eq(first.at[0], 0);
    ck_assert_str_eq(first.value[1], "nan");
}
END_TEST

START_TEST(diff_measures)
{
    tt_group_diff g[2];
    pair p = base;
    ck_assert(diff_pair(p, g)); /* other config: not compared */
    ck_assert_int_eq(g[0].different + g[1].different, 0);
    ck_assert_double_eq(g[0].largest, 0);
    ck_assert_double_eq(g[0].l2, 0);
    ck_assert_str_eq(g[0].tensor, "");

    p.a[2] = -5;  /* 1 / 5 of a */
    p.b[5] = 3.5; /* 0.5 / 3.5 of b */
    ck_assert(!diff_pair(p, g));
    ck_assert_int_eq(g[0].different, 2);
    ck_assert_double_eq_tol(g[0].largest, 0.2, 1e-15);
    ck_assert_str_eq(g[0].tensor, "a");
    double norm = sqrt(1 + 4 + 25 + 0.25 + 3.5 * 3.5);
    ck_assert_double_eq_tol(g[0].l2, sqrt(1 + 0.25) / norm, 1e-15);
    ck_assert_int_eq(g[1].different, 0);

    p = base;
    p.step = 8;
    ck_assert(!diff_pair(p, g));
    ck_assert_int_eq(g[0].different, 0);
    ck_assert_int_eq(g[1].different, 1);
    ck_assert_double_eq_tol(g[1].largest, 1 / 8.0, 1e-15);
    ck_assert_str_eq(g[1].tensor, "step");
}
END_TEST

START_TEST(diff_of_awkward_values)
{
    tt_group_diff g[2];
    pair p = base;
    p.a[3] = -0.0f; /* other bits, same number */
    ck_assert(!diff_pair(p, g));
    ck_assert_int_eq(g[0].different, 1);
    ck_assert_double_eq(g[0].largest, 0);
    ck_assert_str_eq(g[0].tensor, "a");
    p = base;
    p.b[1] = NAN;
    ck_assert(!diff_pair(p, g));
    ck_assert(isinf(g[0].largest) && isinf(g[0].l2));
    ck_assert_str_eq(g[0].tensor, "b");
    p = base;
    p.b[1] = INFINITY;
    ck_assert(!diff_pair(p, g));
    ck_assert(isinf(g[0].largest));
}
END_TEST

/* More groups than room: those that fit are right, and the verdict counts all. */
START_TEST(diff_with_little_room)
{
    char a[640];
    tt_group_diff g[1];
    bool same = true;
    tt_first_diff first;
    int groups = 0;
    pair p = base;
    p.scale = 3;
    save_pair("a.h5", base);
    save_pair("b.h5", p);
    snprintf(a, sizeof a, "%s", in_folder(&dir, "a.h5"));
    ck_assert_int_eq(tt_ckpt_diff(a, in_folder(&dir, "b.h5"), &same, g, 1, &groups, &first, &err),
                     TT_OK);
    ck_assert_int_eq(groups, 1);
    ck_assert(!same);
    ck_assert_int_eq(g[0].different, 0);
}
END_TEST

/* What a number format keeps and one file lacks is a difference, whichever file lacks it; the rest is
 * measured as ever. */
START_TEST(diff_of_formats)
{
    for (int owner = 0; owner < 2; owner++) {
        char a[640];
        tt_group_diff g[4];
        tt_first_diff first;
        bool same = true;
        int groups = 0;
        pair p[2] = {base, base};
        p[owner].coded = true;
        save_pair("a.h5", p[0]);
        save_pair("b.h5", p[1]);
        snprintf(a, sizeof a, "%s", in_folder(&dir, "a.h5"));
        ck_assert_int_eq(
            tt_ckpt_diff(a, in_folder(&dir, "b.h5"), &same, g, 4, &groups, &first, &err), TT_OK);
        ck_assert(!same);
        ck_assert_int_eq(groups, 3);
        for (int i = 0; i < groups; i++) {
            const bool fp8 = strcmp(g[i].group, "fp8") == 0;
            ck_assert_int_eq(g[i].different, fp8 ? 3 : 0);
            ck_assert(fp8 ? isinf(g[i].largest) && isinf(g[i].l2) : g[i].l2 == 0);
        }
        ck_assert_str_eq(first.path, "fp8/amax");
        ck_assert_int_eq(first.dims, 0);
        ck_assert_str_eq(first.value[owner], "there");
        ck_assert_str_eq(first.value[1 - owner], "missing");
    }
}
END_TEST

START_TEST(files_that_do_not_compare)
{
    char a[640], b[640];
    tt_group_diff g[4];
    bool same;
    tt_first_diff first;
    int groups;
    fixture *f = fixture_new(CUT_WHOLE, 0, 1);
    snprintf(a, sizeof a, "%s", in_folder(&dir, "a.h5"));
    snprintf(b, sizeof b, "%s", in_folder(&dir, "b.h5"));
    ck_assert_int_eq(tt_ckpt_save(NULL, a, &f->state, NULL, 0, &err), TT_OK);
    f->state.tensors = TENSORS - 1;
    ck_assert_int_eq(tt_ckpt_save(NULL, b, &f->state, NULL, 0, &err), TT_OK);
    ck_assert_int_eq(tt_ckpt_diff(a, b, &same, g, 4, &groups, &first, &err), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, "adam_v/h.0.mlp.fc.bias is in "));
    ck_assert_int_eq(tt_ckpt_diff(b, a, &same, g, 4, &groups, &first, &err), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, "adam_v/h.0.mlp.fc.bias is in "));
    f->state.tensors = TENSORS;
    f->row[3].dim[0] = 1;
    f->row[3].dim[1] = 97;
    ck_assert_int_eq(tt_ckpt_save(NULL, b, &f->state, NULL, 0, &err), TT_OK);
    ck_assert_int_eq(tt_ckpt_diff(a, b, &same, g, 4, &groups, &first, &err), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, "params/column is [97,1] in"));
    free(f);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("ckpt report");
    TCase *tc = tcase_create("report");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, info_says_what_is_there);
    tcase_add_test(tc, not_checkpoints);
    tcase_add_test(tc, only_regular_files);
    tcase_add_test(tc, diff_names_the_first);
    tcase_add_test(tc, diff_measures);
    tcase_add_test(tc, diff_of_awkward_values);
    tcase_add_test(tc, diff_with_little_room);
    tcase_add_test(tc, diff_of_formats);
    tcase_add_test(tc, files_that_do_not_compare);
    suite_add_tcase(suite, tc);
    return suite;
}

TT_TEST_MAIN(make_suite)
