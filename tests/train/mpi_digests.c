/* mpi_digests.c: digests say which bits a run has, whoever holds them; the arithmetic says which bits
 * it can make. */
#define TT_MPI_TEST
#include <inttypes.h>

#include "tutti/numerics/digest.h"
#include "tutti/train/arithmetic.h"
#include "tutti/train/digests.h"

#include "train_test.h"

enum { ZERO_STAGES = 2, MOST_ROWS = 128 };

/* Values that a digest must tell from others, a function of the element's place: as an equal state on
 * any split. */
static void fill_state(tt_trainer *t)
{
    const tt_shard *shard = &t->print.shard;
    float *const data[] = {t->optimizer.all.master, t->optimizer.all.m, t->optimizer.all.v};
    for (int g = 0; g < 3; g++) {
        for (int i = 0; i < shard->count; i++) {
            for (int64_t e = shard->range[i].first; e < shard->range[i].end; e++) {
                data[g][shard->local[i] + e - shard->range[i].first] =
                    (float)(e % 1009) * 0.25f + (float)g;
            }
        }
    }
}

static void take(tt_digests *digests, tt_trainer *t)
{
    must(tt_digests_open(digests, t, &err_));
    must(tt_digests_take(digests, t, &err_));
}

/* Of the same state: these ranks with ZeRO 0 and 1, one rank alone, and by the definition. */
START_TEST(digests_do_not_depend_on_the_split)
{
    tt_config config = tiny_config("split"), own = alone_config(&config, tt_test_world.size);
    tt_trainer one;
    tt_digests mine;
    set(&own, "memory.zero", "0");
    open_trainer(&one, &own, &alone);
    fill_state(&one);
    take(&mine, &one);
    const tt_params *params = &one.print.params;
    ck_assert(everywhere(mine.rows.rows == 3 * params->count && params->count <= MOST_ROWS));
    uint64_t sum[MOST_ROWS];
    bool right = true;
    for (int i = 0; i < params->count; i++) {
        const tt_param *p = &params->param[i];
        sum[i] = tt_digest32(one.optimizer.all.master + p->offset, 0, p->count);
        right = right && mine.sum[i] == sum[i];
        right = right && mine.sum[params->count + i] ==
                             tt_digest32(one.optimizer.all.m + p->offset, 0, p->count);
        right = right && mine.sum[2 * params->count + i] == /* ... and v */
                             tt_digest32(one.optimizer.all.v + p->offset, 0, p->count);
    }
    ck_assert(everywhere(right));
    const int64_t bytes = params->count * (int64_t)sizeof *sum;
    ck_assert(everywhere(mine.weights == tt_digest_bytes(sum, bytes)));

    for (int zero = 0; zero < ZERO_STAGES; zero++) {
        tt_trainer t;
        tt_digests digests;
        set(&config, "memory.zero", "%d", zero);
        set(&config, "run.threads", "%d", 1 + zero);
        open_trainer(&t, &config, &tt_test_world);
        fill_state(&t);
        take(&digests, &t);
        ck_assert(everywhere(digests.weights == mine.weights));
        ck_assert(everywhere(memcmp(digests.sum, mine.sum, 3 * (size_t)bytes) == 0));

        /* One bit of one element, which one rank holds or all do. */
        const int64_t at = params->param[1].offset + 1;
        for (int i = 0; i < t.print.shard.count; i++) {
            const tt_range r = t.print.shard.range[i];
            if (r.first <= at && at < r.end) {
                uint32_t bits;
                float *element = t.optimizer.all.master + t.print.shard.local[i] + (at - r.first);
                memcpy(&bits, element, sizeof bits);
                bits ^= 1;
                memcpy(element, &bits, sizeof bits);
            }
        }
        must(tt_digests_take(&digests, &t, &err_));
        ck_assert(everywhere(digests.weights != mine.weights));
        bool rest = true;
        for (int i = 0; i < digests.rows.rows; i++) {
            rest = rest && (digests.sum[i] == mine.sum[i]) == (i != 1);
        }
        ck_assert(everywhere(rest));
        tt_digests_close(&digests);
        tt_trainer_close(&t);
    }
    tt_digests_close(&mine);
    tt_trainer_close(&one);
}
END_TEST

/* A line is one object, and taking memory is over when it is opened. */
START_TEST(lines_need_no_memory)
{
    tt_config config = tiny_config("line");
    tt_trainer t;
    tt_digests digests;
    char words[128];
    open_trainer(&t, &config, &tt_test_world);
    take(&digests, &t);
    const size_t room = digests.line.capacity;
    const tt_text *line = tt_digests_line(&digests, INT64_MAX);
    ck_assert(everywhere(!line->failed && digests.line.capacity == room));
    snprintf(words, sizeof words,
             "{\"step\": %" PRId64 ", \"digest\": \"%016" PRIx64
             "\", \"tensors\": {\"params/wte\": \"",
             INT64_MAX, digests.weights);
    ck_assert(everywhere(strncmp(line->data, words, strlen(words)) == 0));
    ck_assert(everywhere(strcmp(line->data + line->length - 4, "\"}}\n") == 0));
    snprintf(words, sizeof words, "\"adam_v/%s\": \"%016" PRIx64 "\"}}\n",
             t.print.params.param[t.print.params.count - 1].name,
             digests.sum[digests.rows.rows - 1]);
    ck_assert(everywhere(strstr(line->data, words) != NULL));
    tt_digests_close(&digests);
    tt_digests_close(&digests); /* safe twice */
    tt_trainer_close(&t);
}
END_TEST

/* The run's own lines, and the checkpoint's digest is the last of them. */
START_TEST(a_run_writes_digests)
{
    tt_config config = tiny_config("run");
    tt_trainer t;
    tt_text metrics = {0}, digests = {0}, info = {0};
    char words[128];
    set(&config, "run.digest_every", "4");
    open_trainer(&t, &config, &tt_test_world);
    must(tt_trainer_run(&t, &err_));
    tt_trainer_close(&t);
    must(tt_read_file(in_folder("run/digests.jsonl"), 1 << 20, &digests, &err_));
    must(tt_read_file(in_folder("run/metrics.jsonl"), 1 << 20, &metrics, &err_));
    must(tt_ckpt_info(in_folder("run/step-00000006.h5"), &info, &err_));
    const char *last = strstr(digests.data, "{\"step\": 6, "); /* the last step is always there */
    ck_assert(everywhere(last && strncmp(digests.data, "{\"step\": 4, ", 12) == 0));
    const char *digest = strstr(last, "\"digest\": \"");
    ck_assert(everywhere(digest != NULL));
    snprintf(words, sizeof words, "\ngroup_digests/params     %.16s\n", digest + 11);
    ck_assert(everywhere(strstr(info.data, words) != NULL));
    snprintf(words, sizeof words, ", %.28s, ", digest);
    const char *in_metrics = strstr(metrics.data, words);
    ck_assert(everywhere(in_metrics && in_metrics > strstr(metrics.data, "{\"step\": 6, ")));
    int times = 0;
    for (const char *at = metrics.data; (at = strstr(at, "\"digest\": ")); at++) {
        times++;
    }
    ck_assert(everywhere(times == 2));
    tt_text_free(&metrics);
    tt_text_free(&digests);
    tt_text_free(&info);
}
END_TEST

/* --- arithmetic --------------------------------------------------------------------------------- */

START_TEST(arithmetic_names_what_bits_depend_on)
{
    static const struct {
        const char *compute, *isa, *words, *never;
    } cases[] = {{"fp32", "ref", ", fp32 on ref, glibc ", "OpenBLAS"},
                 {"fp32", "", ", matmuls by OpenBLAS ", "guard"},
                 {"bf16", "", ", bf16 on ", "OpenBLAS"},
                 {"bf16", "guard:ref", ", bf16 on ref, ", "guard"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tt_config config = tiny_config("arithmetic");
        tt_blueprint print;
        tt_text text = {0};
        set(&config, "precision.compute", "%s", cases[i].compute);
        must(tt_blueprint_make(&print, &config, 257, 0, 1, 1, cases[i].isa, &err_));
        tt_arithmetic_text(&print, &text);
        ck_assert_msg(everywhere(strstr(text.data, cases[i].words) != NULL), "%s", text.data);
        ck_assert_msg(everywhere(strstr(text.data, cases[i].never) == NULL), "%s", text.data);
        ck_assert(everywhere(strncmp(text.data, "tutti ", 6) == 0));
        tt_text_free(&text);
        tt_blueprint_free(&print);
    }
}
END_TEST

/* Exact mode on machines that compute differently is refused, and says what to do. */
START_TEST(exact_ranks_share_their_arithmetic)
{
    tt_config config = tiny_config("mixed");
    tt_trainer t;
    tt_err err = {TT_OK, ""};
    const char *isa = getenv("TUTTI_ISA");
    char *before = isa ? strdup(isa) : NULL;
    set(&config, "run.exact", "true");
    setenv("TUTTI_ISA", tt_test_world.rank == tt_test_world.size - 1 ? "guard:ref" : "ref", 1);
    open_trainer(&t, &config, &tt_test_world); /* guard changes no bit */
    tt_trainer_close(&t);
    if (tt_test_world.rank == tt_test_world.size - 1) {
        unsetenv("TUTTI_ISA"); /* fp32 then has OpenBLAS */
    }
    tt_code rc = tt_trainer_open(&t, &config, &tt_test_world, &quiet, &err);
    if (tt_test_world.size == 1) {
        ck_assert_msg(rc == TT_OK, "%s", err.text);
        tt_trainer_close(&t);
    } else {
        ck_assert_msg(everywhere(rc == TT_EUSER), "code %d: %s", rc, err.text);
        ck_assert_msg(everywhere(strstr(err.text, "run.exact: arithmetic differs") != NULL), "%s",
                      err.text);
        ck_assert_msg(everywhere(strstr(err.text, "the same TUTTI_ISA") != NULL), "%s", err.text);
    }
    if (before) {
        setenv("TUTTI_ISA", before, 1);
    } else {
        unsetenv("TUTTI_ISA");
    }
    free(before);
}
END_TEST

/* What another machine stored, as this one sees it: the sentence has `words` in it, and the history goes
 * on with `past`. */
static void compared(tt_trainer *t, const char *stored, bool exact, const char *words,
                     const char *past)
{
    tt_text said = {0}, kept = {0};
    t->print.config.run.exact = exact;
    must(tt_arithmetic_compare(t, stored, "somewhere.h5", &said, &kept, &err_));
    const char *text = said.data ? said.data : "";
    ck_assert_msg(everywhere(words[0] != '\0' ? strstr(text, words) != NULL : text[0] == '\0'),
                  "%s", text);
    ck_assert_str_eq(kept.data ? kept.data : "", past);
    tt_text_free(&said);
    tt_text_free(&kept);
}

START_TEST(other_arithmetic_is_told)
{
    tt_config config = tiny_config("other");
    tt_trainer t;
    tt_text now = {0}, words = {0}, again = {0};
    open_trainer(&t, &config, &tt_test_world);
    tt_arithmetic_text(&t.print, &now);
    tt_text_add(&words, "(stored: an abacus; now: %s)", now.data);
    t.progress.step = 7;
    compared(&t, "an abacus", true, words.data, "; until step 7: an abacus");
    compared(&t, "an abacus; until step 4: fingers", true, words.data,
             "; until step 7: an abacus; until step 4: fingers");
    compared(&t, now.data, true, "", "");
    tt_text_add(&again, "%s; until step 4: fingers", now.data);
    compared(&t, again.data, true, "", "; until step 4: fingers");
    compared(&t, "", true, "does not say by which arithmetic", "; until step 7: not recorded");
    compared(&t, "an abacus", false, "", "; until step 7: an abacus");
    compared(&t, "", false, "", "; until step 7: not recorded");
    t.progress.step = 0;
    tt_text_free(&now);
    tt_text_free(&words);
    tt_text_free(&again);
    tt_trainer_close(&t);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/digests");
    TCase *tests = tcase_create("digests");
    tcase_set_timeout(tests, 0);
    tcase_add_unchecked_fixture(tests, open_folder, close_folder);
    tcase_add_test(tests, digests_do_not_depend_on_the_split);
    tcase_add_test(tests, lines_need_no_memory);
    tcase_add_test(tests, a_run_writes_digests);
    tcase_add_test(tests, arithmetic_names_what_bits_depend_on);
    tcase_add_test(tests, exact_ranks_share_their_arithmetic);
    tcase_add_test(tests, other_arithmetic_is_told);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
