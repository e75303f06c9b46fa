/* test_lines.c: a file of lines is cut back to what a plain filter keeps of it: whatever the lines,
 * however long, wherever they are; rewritten only when more than its end goes. */
#include "tutti/base/rng.h"

#include "train/train_impl.h"
#include "train_test.h"

static int64_t draw(uint64_t trial, uint64_t index, int64_t n)
{
    return (int64_t)(tt_rng_uniform(tt_rng_key(trial, TT_RNG_TEST, 0), 1, index) * (double)n);
}

enum { LAST = 50 };

/* Adds one line to `all`, and to `kept` if it is to stay; *valid: it is the evaluation of LAST. */
static void add_line(uint64_t trial, uint64_t index, tt_text *all, tt_text *kept, bool *valid)
{
    tt_text line = {0};
    bool stays = true;
    const int64_t step = trial % 2 ? draw(trial, index, 2 * LAST) : (int64_t)index;
    switch (draw(trial, index + 1000, 9)) {
    case 0:
        if (trial % 2 == 0 && step > LAST) {
            break; /* none after what is cut */
        }
        tt_text_add(&line, "{\"run\": {\"first_step\": %d}}\n", (int)step);
        break;
    case 1:
        tt_text_add(&line, "{\"step\": %d, \"valid_loss\": 4}\n", (int)step);
        stays = step <= LAST;
        *valid = *valid || step == LAST;
        break;
    case 2: /* as a power cut leaves it, now and then */
        if (trial % 2 == 0 && step > LAST) {
            break;
        }
        tt_text_add(&line, "{\"step\": 1, \"lo");
        tt_text_add_bytes(&line, "\0\0", trial % 3 == 0 ? 2 : 0);
        tt_text_add(&line, "\n");
        stays = trial % 3 != 0;
        break;
    case 3:
        stays = trial % 2 || step <= LAST;
        tt_text_add(&line, "%s",
                    !stays                         ? "{\"step\": 9999}\n"
                    : draw(trial, index + 2000, 2) ? "\n"
                                                   : "{\"step\": \n");
        break;
    default:
        tt_text_add(&line, "{\"step\": %d, \"samples\": [", (int)step);
        for (int64_t i = draw(trial, index + 3000, index % 40 == 7 ? 1 << 19 : 99); i > 0; i--) {
            tt_text_add(&line, "123, ");
        }
        tt_text_add(&line, "4]}\n");
        stays = step <= LAST;
    }
    tt_text_add_bytes(all, line.data, line.length);
    tt_text_add_bytes(kept, stays ? line.data : "", stays ? line.length : 0);
    tt_text_free(&line);
}

START_TEST(as_a_plain_filter_does)
{
    const uint64_t trial = (uint64_t)_i;
    const char *path = in_folder("lines-%d", _i);
    tt_text all = {0}, kept = {0}, now = {0};
    bool want = false, valid = false;
    struct stat before, after;
    for (int64_t i = 0; i < draw(trial, 9999, 200);
         i++) { /* even trials: in order, as runs write */
        add_line(trial, (uint64_t)i, &all, &kept, &want);
    }
    if (trial % 4 == 0) {
        tt_text_add(&all, "{\"step\": 3, \"loss\": 1"); /* never ended */
    }
    write_text(path, all.length > 0 ? all.data : "", all.length);
    ck_assert_int_eq(stat(path, &before), 0);
    must(tt_lines_cut(path, LAST, &valid, &err_));
    must(tt_read_file(path, (size_t)1 << 30, &now, &err_));
    ck_assert_uint_eq(now.length, kept.length);
    ck_assert(now.length == 0 || memcmp(now.data, kept.data, kept.length) == 0);
    ck_assert(valid == want);
    ck_assert_int_eq(stat(path, &after), 0);
    const bool beginning = kept.length == 0 || memcmp(all.data, kept.data, kept.length) == 0;
    ck_assert(after.st_ino == before.st_ino || !beginning);
    ck_assert(after.st_ino != before.st_ino || beginning);
    ck_assert(!tt_file_exists(in_folder("lines-%d.part", _i)));
    tt_text_free(&all);
    tt_text_free(&kept);
    tt_text_free(&now);
}
END_TEST

START_TEST(what_is_no_file)
{
    bool valid = true;
    tt_err err;
    must(tt_lines_cut(in_folder("nowhere"), LAST, &valid, &err_));
    ck_assert_int_eq(mkfifo(in_folder("pipe"), 0600), 0);
    ck_assert_int_eq(tt_lines_cut(in_folder("pipe"), LAST, NULL, &err), TT_EWORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "not a regular file"));
    ck_assert_int_eq(tt_lines_cut(test_folder, LAST, NULL, &err), TT_EWORLD);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/lines");
    TCase *tests = tcase_create("lines");
    tcase_set_timeout(tests, 0);
    tcase_add_unchecked_fixture(tests, open_folder, close_folder);
    tcase_add_loop_test(tests, as_a_plain_filter_does, 0, 60);
    tcase_add_test(tests, what_is_no_file);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
