/* test_metrics.c: what programs read: whole JSON objects with the promised keys, and one file that
 * reads as one run however often it was interrupted. */
#include "train_test.h"

/* --- a reader of JSON, strict, that only notes the keys of the outermost object ----------------- */

static const char *value_end(const char *at, tt_text *keys);

static const char *spaces(const char *at)
{
    return at + strspn(at, " ");
}

static const char *string_end(const char *at)
{
    if (*at++ != '"') {
        return NULL;
    }
    for (; *at != '"'; at++) {
        if ((unsigned char)*at < 0x20) {
            return NULL;
        }
        if (*at == '\\' && strchr("\"\\/bfnrtu", *++at) == NULL) {
            return NULL;
        }
    }
    return at + 1;
}

static const char *number_end(const char *at)
{
    static const char digits[] = "0123456789";
    at += *at == '-';
    size_t whole = strspn(at, digits);
    if (whole == 0 || (whole > 1 && *at == '0')) {
        return NULL;
    }
    at += whole;
    if (*at == '.') {
        size_t part = strspn(++at, digits);
        at = part > 0 ? at + part : NULL;
    }
    if (at && (*at == 'e' || *at == 'E')) {
        at++;
        at += *at == '+' || *at == '-';
        size_t power = strspn(at, digits);
        at = power > 0 ? at + power : NULL;
    }
    return at;
}

/* After the opening bracket: members up to `close`. */
static const char *members_end(const char *at, char close, tt_text *keys)
{
    at = spaces(at);
    if (*at == close) {
        return at + 1;
    }
    for (;;) {
        if (close == '}') {
            const char *key = spaces(at);
            at = string_end(key);
            if (!at) {
                return NULL;
            }
            if (keys) {
                tt_text_add(keys, "%s%.*s", keys->length > 0 ? " " : "", (int)(at - key - 2),
                            key + 1);
            }
            at = spaces(at);
            if (*at++ != ':') {
                return NULL;
            }
        }
        at = value_end(at, NULL);
        if (!at) {
            return NULL;
        }
        at = spaces(at);
        if (*at == close) {
            return at + 1;
        }
        if (*at++ != ',') {
            return NULL;
        }
    }
}

/* Just past the value, or NULL when it is none. */
static const char *value_end(const char *at, tt_text *keys)
{
    static const char *const words[] = {"true", "false", "null"};
    at = spaces(at);
    for (int i = 0; i < 3; i++) {
        if (strncmp(at, words[i], strlen(words[i])) == 0) {
            return at + strlen(words[i]);
        }
    }
    switch (*at) {
    case '{':
        return members_end(at + 1, '}', keys);
    case '[':
        return members_end(at + 1, ']', NULL);
    case '"':
        return string_end(at);
    default:
        return number_end(at);
    }
}

/* The keys of a line, which must be one object; the caller frees. */
static tt_text keys_of(const char *line)
{
    tt_text keys = {0};
    const char *end = line[0] == '{' ? value_end(line, &keys) : NULL;
    ck_assert_msg(end && *end == '\0', "no JSON object: %s", line);
    return keys;
}

static void has_keys(const char *line, const char *wanted)
{
    tt_text keys = keys_of(line);
    ck_assert_str_eq(keys.data, wanted);
    tt_text_free(&keys);
}

START_TEST(the_reader_is_strict)
{
    static const char *const good[] = {"1",  "-0.5e+3", "\"a\\\"b\"", "[]", "[1, {\"a\": null}]",
                                       "{}", "true"};
    static const char *const bad[] = {"nan",     "inf",    "-nan",     "01", "1.", ".5",   "[1,]",
                                      "{\"a\"}", "{a: 1}", "\"a\\x\"", "{",  "1e", "[1 2]"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        const char *end = value_end(good[i], NULL);
        ck_assert_msg(end && *end == '\0', "%s", good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *end = value_end(bad[i], NULL);
        ck_assert_msg(!end || *end != '\0', "%s", bad[i]);
    }
}
END_TEST

/* --- lines -------------------------------------------------------------------------------------- */

static const char step_keys[] =
    "step loss tokens tokens_seen lr grad_norm clipped loss_scale skipped nonfinite step_ms "
    "tokens_per_s mfu comm_ms comm_exposed_ms imbalance_ms comm_calls comm_bytes rss_mb time";
static const char valid_keys[] = "step valid_loss valid_tokens";

enum { MOST_LINES = 64 };

typedef struct lines {
    tt_text text; /* owned; cut at the ends of lines */
    char *line[MOST_LINES];
    int count;
} lines;

/* All lines of a file; each must end. */
static lines read_lines(const char *path)
{
    lines out = {.count = 0};
    must(tt_read_file(path, 1 << 20, &out.text, &err_));
    ck_assert_uint_gt(out.text.length, 0);
    ck_assert_int_eq(out.text.data[out.text.length - 1], '\n');
    for (char *at = out.text.data; *at != '\0';) {
        ck_assert_int_lt(out.count, MOST_LINES);
        out.line[out.count++] = at;
        at = strchr(at, '\n');
        *at++ = '\0';
    }
    return out;
}

/* A number after "key": in a line. */
static double number_of(const char *line, const char *key)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    const char *at = strstr(line, quoted);
    ck_assert_msg(at != NULL, "no %s in %s", key, line);
    return strtod(at + strlen(quoted), NULL);
}

/* A folder whose name needs care in JSON. */
static tt_config metrics_config(const char *run)
{
    tt_config config = tiny_config("plain");
    set(&config, "run.dir", "%s", in_folder("%s \"quoted\\folder\"", run));
    set(&config, "run.steps", "4");
    set(&config, "run.eval_every", "2");
    set(&config, "run.eval_sequences", "3");
    set(&config, "run.trace_data", "true");
    set(&config, "batch.accumulate", "3");
    return config;
}

static const char *in_run(const tt_config *config, const char *name)
{
    static char path[TT_PATH + 64];
    snprintf(path, sizeof path, "%s/%s", config->run.dir, name);
    return path;
}

START_TEST(a_run_writes_the_promised_lines)
{
    tt_config config = metrics_config("lines");
    tt_trainer t;
    open_trainer(&t, &config, &alone);
    must(tt_trainer_run(&t, &err_));
    lines got = read_lines(in_run(&config, "metrics.jsonl"));
    ck_assert_int_eq(got.count, 1 + 4 + 2 + 1 + 1);
    has_keys(got.line[0], "run");
    static const char *const said[] = {"version", "config", "ranks",     "threads",
                                       "isa",     "plan",   "parameters"};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        number_of(got.line[0], said[i]); /* is there */
    }
    ck_assert_ptr_nonnull(strstr(got.line[0], "\"quoted\\\\folder\\\"")); /* escaped */
    ck_assert(number_of(got.line[0], "ranks") == 1);
    ck_assert(number_of(got.line[0], "total_bytes") == (double)t.print.plan.total);
    double seen = 0;
    ck_assert(number_of(got.line[got.count - 2], "step") == 4);
    ck_assert_ptr_nonnull(strstr(got.line[got.count - 2], "\"saved\": \"step-00000004.h5\""));
    ck_assert(number_of(got.line[got.count - 2], "save_mb_per_s") > 0);
    for (int i = 1, step = 1; i < got.count - 2; i++) {
        if (i == 3 || i == 6) {
            has_keys(got.line[i], valid_keys);
            ck_assert(number_of(got.line[i], "step") == step - 1);
            ck_assert(number_of(got.line[i], "valid_tokens") == 3 * CONTEXT);
            ck_assert(number_of(got.line[i], "valid_loss") > 5); /* ln 257 = 5.5 */
            continue;
        }
        has_keys(got.line[i], step_keys);
        seen += number_of(got.line[i], "tokens");
        ck_assert(number_of(got.line[i], "step") == step++);
        ck_assert(number_of(got.line[i], "tokens_seen") == seen);
        ck_assert(number_of(got.line[i], "loss") > 5 && number_of(got.line[i], "loss") < 6);
        ck_assert(number_of(got.line[i], "step_ms") > 0 && number_of(got.line[i], "rss_mb") > 0);
    }
    const char *end = got.line[got.count - 1]; /* what was planned and what there was */
    has_keys(end, "memory");
    for (int c = 0; c < TT_MEM_COMPONENTS; c++) {
        char key[64];
        snprintf(key, sizeof key,
                 "\"%s\": {\"planned\": %zu, \"measured\": ", tt_component_names[c],
                 t.print.plan.bytes[c]);
        ck_assert_msg(strstr(end, key) != NULL, "%s in %s", key, end);
    }
    ck_assert_ptr_nonnull(strstr(end, "\"libraries\": {\"planned\": "));
    ck_assert_ptr_nonnull(strstr(end, "\"total\": {\"planned\": "));
    ck_assert(number_of(end, "peak_rss") > (double)t.print.plan.total);
    tt_text_free(&got.text);

    /* data.jsonl: every global sample once, in order, and which window it is. */
    got = read_lines(in_run(&config, "data.jsonl"));
    ck_assert_int_eq(got.count, 4);
    for (int i = 0; i < 4; i++) {
        tt_text wanted = {0};
        tt_text_add(&wanted, "{\"step\": %d, \"samples\": [%d, %d, %d], \"elements\": [", i + 1,
                    3 * i, 3 * i + 1, 3 * i + 2);
        for (int j = 0; j < 3; j++) {
            tt_text_add(&wanted, "%s%lld", j > 0 ? ", " : "",
                        (long long)tt_sampler_element(&t.sampler, 3 * i + j));
        }
        tt_text_add(&wanted, "]}");
        ck_assert_str_eq(got.line[i], wanted.data);
        has_keys(got.line[i], "step samples elements");
        tt_text_free(&wanted);
    }
    tt_text_free(&got.text);
    tt_trainer_close(&t);
}
END_TEST

/* Lines of steps that come again go, a half line goes, all else stays as it is. */
START_TEST(resuming_cuts_back)
{
    static const char before[] = "{\"run\": {}}\n{\"step\": 1, \"loss\": 5}\n"
                                 "{\"step\": 2, \"loss\": 4}\n{\"step\": 2, \"valid_loss\": 4}\n";
    static const char after[] = "{\"step\": 3, \"loss\": 3}\n{\"run\": {\"old\": 1}}\n"
                                "{\"step\": 10, \"loss\": 2}\n{\"step\": 2, \"lo";
    tt_config config = metrics_config("cut");
    tt_trainer t;
    tt_metrics metrics;
    tt_text text = {0};
    open_trainer(&t, &config, &alone);
    t.progress.step = 2;
    tt_text_add(&text, "%s%s", before, after);
    write_text(in_run(&config, "metrics.jsonl"), text.data, text.length);
    write_text(in_run(&config, "data.jsonl"), text.data, text.length);
    write_text(in_run(&config, "numerics.jsonl"), text.data, text.length);
    tt_text_free(&text);

    must(tt_metrics_open(&metrics, &t, &err_));
    tt_metrics_close(&metrics);
    lines got = read_lines(in_run(&config, "metrics.jsonl"));
    ck_assert_int_eq(got.count, 6);
    ck_assert_str_eq(got.line[0], "{\"run\": {}}");
    ck_assert_str_eq(got.line[1], "{\"step\": 1, \"loss\": 5}");
    ck_assert_str_eq(got.line[2], "{\"step\": 2, \"loss\": 4}");
    ck_assert_str_eq(got.line[3], "{\"step\": 2, \"valid_loss\": 4}");
    ck_assert_str_eq(got.line[4], "{\"run\": {\"old\": 1}}");
    has_keys(got.line[5], "run");
    ck_assert(number_of(got.line[5], "first_step") == 3);
    tt_text_free(&got.text);
    const char *const others[] = {"data.jsonl", "numerics.jsonl"};
    for (int i = 0; i < 2; i++) {
        got = read_lines(in_run(&config, others[i]));
        ck_assert_int_eq(got.count, 5);
        tt_text_free(&got.text);
    }

    /* Opened again: nothing more to cut. */
    must(tt_metrics_open(&metrics, &t, &err_));
    tt_metrics_close(&metrics);
    got = read_lines(in_run(&config, "metrics.jsonl"));
    ck_assert_int_eq(got.count, 7);
    tt_text_free(&got.text);
    tt_trainer_close(&t);
}
END_TEST

/* A power cut leaves NUL bytes where the disk had not got the text: such lines go, later ones stay. */
START_TEST(resuming_drops_damaged_lines)
{
    static const char damaged[] = "{\"run\": {}}\n{\"step\": 1, \"loss\": 5}\n"
                                  "{\"step\": 2, \"lo\0\0\0\n\0\0{\"step\": 3, \"loss\": 3}\n"
                                  "\0\n{\"step\": 4, \"loss\": 2}\n{\"step\": 9, \"loss\": 1}\n"
                                  "{\"step\": 4\0\0\0";
    tt_config config = metrics_config("damaged");
    tt_trainer t;
    tt_metrics metrics;
    open_trainer(&t, &config, &alone);
    t.progress.step = 4;
    write_text(in_run(&config, "metrics.jsonl"), damaged, sizeof damaged - 1);
    must(tt_metrics_open(&metrics, &t, &err_));
    tt_metrics_close(&metrics);
    lines got = read_lines(in_run(&config, "metrics.jsonl"));
    ck_assert_int_eq(got.count, 4);
    ck_assert_str_eq(got.line[0], "{\"run\": {}}");
    ck_assert_str_eq(got.line[1], "{\"step\": 1, \"loss\": 5}");
    ck_assert_str_eq(got.line[2], "{\"step\": 4, \"loss\": 2}");
    has_keys(got.line[3], "run");
    tt_text_free(&got.text);
    tt_trainer_close(&t);
}
END_TEST

/* Equal texts are equal bits: every double is told from its neighbours. */
START_TEST(numbers_are_whole)
{
    tt_config config = metrics_config("digits");
    tt_trainer t;
    tt_metrics metrics;
    const double loss[] = {1.0 / 3, nextafter(1.0 / 3, 1), 2.0};
    open_trainer(&t, &config, &alone);
    must(tt_metrics_open(&metrics, &t, &err_));
    for (int i = 0; i < 3; i++) {
        tt_record record = {.step = i + 1, .loss = loss[i], .grad_norm = -loss[i]};
        must(tt_metrics_step(&metrics, &t, &record, NULL, &err_));
    }
    tt_metrics_close(&metrics);
    lines got = read_lines(in_run(&config, "metrics.jsonl"));
    for (int i = 0; i < 3; i++) {
        ck_assert(number_of(got.line[i + 1], "loss") == loss[i]);
        ck_assert(number_of(got.line[i + 1], "grad_norm") == -loss[i]);
    }
    ck_assert_ptr_nonnull(strstr(got.line[3], "\"loss\": 2, "));
    tt_text_free(&got.text);
    tt_trainer_close(&t);
}
END_TEST

/* JSON has no NaN and no infinity. */
START_TEST(what_is_not_finite_is_null)
{
    tt_config config = metrics_config("null");
    tt_trainer t;
    tt_metrics metrics;
    tt_record record = {.step = 1, .loss = NAN, .grad_norm = INFINITY, .skipped = true};
    tt_loss loss = {.count = 4};
    tt_exact_add(&loss.sum, -INFINITY);
    open_trainer(&t, &config, &alone);
    must(tt_metrics_open(&metrics, &t, &err_));
    must(tt_metrics_step(&metrics, &t, &record, NULL, &err_));
    must(tt_metrics_valid(&metrics, &t, &loss, &err_));
    tt_metrics_close(&metrics);
    tt_metrics_close(&metrics); /* safe twice */
    lines got = read_lines(in_run(&config, "metrics.jsonl"));
    ck_assert_int_eq(got.count, 3);
    has_keys(got.line[1], step_keys);
    has_keys(got.line[2], valid_keys);
    ck_assert_ptr_nonnull(strstr(got.line[1], "\"loss\": null, "));
    ck_assert_ptr_nonnull(strstr(got.line[1], "\"grad_norm\": null, "));
    ck_assert_ptr_nonnull(strstr(got.line[1], "\"skipped\": true, "));
    ck_assert_ptr_nonnull(strstr(got.line[2], "\"valid_loss\": null, "));
    tt_text_free(&got.text);
    tt_trainer_close(&t);
}
END_TEST

/* A step that is skipped in a real run. */
START_TEST(skipped_step_is_a_line)
{
    tt_config config = metrics_config("skip");
    tt_trainer t;
    open_trainer(&t, &config, &alone);
    t.fault = (tt_fault){.kind = TT_FAULT_NAN_GRAD, .rank = -1, .step = 2};
    must(tt_trainer_run(&t, &err_));
    tt_trainer_close(&t);
    lines got = read_lines(in_run(&config, "metrics.jsonl"));
    for (int i = 1; i < got.count; i++) {
        bool skipped = strstr(got.line[i], "\"skipped\": true") != NULL;
        tt_text keys = keys_of(got.line[i]);
        ck_assert(skipped == (i == 2));
        tt_text_free(&keys);
    }
    ck_assert(number_of(got.line[2], "nonfinite") >= 1);
    ck_assert_ptr_nonnull(strstr(got.line[2], "\"grad_norm\": null, "));
    tt_text_free(&got.text);
}
END_TEST

/* A disk that refuses is a sentence, not a crash. */
START_TEST(refusing_disk)
{
    tt_config config = metrics_config("full");
    tt_trainer t;
    tt_metrics metrics;
    tt_record record = {.step = 1};
    tt_err err = {TT_OK, ""};
    open_trainer(&t, &config, &alone);
    must(tt_metrics_open(&metrics, &t, &err_));
    fclose(metrics.file);
    metrics.file = fopen("/dev/full", "w");
    ck_assert_ptr_nonnull(metrics.file);
    ck_assert_int_eq(tt_metrics_step(&metrics, &t, &record, NULL, &err), TT_EWORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "metrics.jsonl"));
    tt_metrics_close(&metrics);
    tt_trainer_close(&t);
}
END_TEST

/* Is the number a largest magnitude of the last step, divided by `over`? */
static bool is_amax(const tt_fp8 *fp8, double value, double over)
{
    bool found = false;
    for (int i = 0; i < fp8->sites; i++) {
        found = found || (value > 0 && value == (double)fp8->amax[i] / over);
    }
    return found;
}

/* Magnitudes of FP8's gradients are of the mean loss, as the norm is; of activations, their own. */
START_TEST(magnitudes_of_gradients_are_of_the_mean)
{
    tt_config config = metrics_config("fp8");
    tt_trainer t;
    set(&config, "precision.compute", "fp8");
    set(&config, "fp8.backward", "e5m2");
    set(&config, "precision.loss_scale", "1024");
    open_trainer(&t, &config, &alone);
    must(tt_trainer_run(&t, &err_));
    lines got = read_lines(in_run(&config, "metrics.jsonl"));
    const char *line = got.line[5]; /* of step 4: an evaluation stands on either side of 3 and 4 */
    const double tokens = number_of(line, "tokens");
    ck_assert(number_of(line, "step") == 4 && tokens > 1);
    ck_assert(is_amax(&t.print.fp8, number_of(line, "grad_qkv"), tokens));
    ck_assert(!is_amax(&t.print.fp8, number_of(line, "grad_qkv"), 1));
    ck_assert(is_amax(&t.print.fp8, number_of(line, "norm_1"), 1));
    tt_text_free(&got.text);
    tt_trainer_close(&t);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/metrics");
    TCase *tests = tcase_create("metrics");
    tcase_set_timeout(tests, 0);
    tcase_add_unchecked_fixture(tests, open_folder, close_folder);
    tcase_add_test(tests, the_reader_is_strict);
    tcase_add_test(tests, a_run_writes_the_promised_lines);
    tcase_add_test(tests, magnitudes_of_gradients_are_of_the_mean);
    tcase_add_test(tests, resuming_cuts_back);
    tcase_add_test(tests, resuming_drops_damaged_lines);
    tcase_add_test(tests, numbers_are_whole);
    tcase_add_test(tests, what_is_not_finite_is_null);
    tcase_add_test(tests, skipped_step_is_a_line);
    tcase_add_test(tests, refusing_disk);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
