/* test_save_load.c: one process: round trips, refusals, and disks that fail. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "ckpt/ckpt_impl.h"

#include "ckpt_test.h"

static folder dir;
static tt_err err;

static void set_up(void)
{
    dir = folder_new();
    err = (tt_err){.code = TT_OK};
}

static void tear_down(void)
{
    folder_free(&dir);
}

static fixture *saved_fixture(uint64_t seed, const char *path)
{
    fixture *f = fixture_new(CUT_WHOLE, 0, 1);
    fill_values(f, seed);
    ck_assert_msg(tt_ckpt_save(NULL, path, &f->state, NULL, 100, &err) == TT_OK, "%s", err.text);
    return f;
}

static tt_code load(const char *path, fixture *f, bool params_only)
{
    return tt_ckpt_load(NULL, path, &f->state, params_only, &err);
}

START_TEST(every_bit_comes_back)
{
    const char *path = in_folder(&dir, "step-1.h5");
    fixture *f = saved_fixture(5, path);
    ck_assert_int_eq(folder_count(&dir), 1);
    for (int kind = CUT_RANGES; kind <= CUT_WHOLE; kind++) {
        for (int size = 1; size <= 3; size++) {
            fixture *got = fixture_new((cut_kind)kind, size - 1, size);
            fill_marks(got);
            ck_assert_msg(load(path, got, false) == TT_OK, "%s", err.text);
            ck_assert(pieces_match(got, f, "") && scalars_match(got, f));
            free(got);
        }
    }
    free(f);
}
END_TEST

START_TEST(params_only_leaves_the_rest)
{
    const char *path = in_folder(&dir, "step-1.h5");
    fixture *f = saved_fixture(5, path);
    fixture *got = fixture_new(CUT_WHOLE, 0, 1);
    fill_marks(got);
    ck_assert_int_eq(load(path, got, true), TT_OK);
    ck_assert(pieces_match(got, f, "params/"));
    ck_assert_int_eq(got->step, 0);
    free(got);
    free(f);
}
END_TEST

/* Gradients alone: no scalars, no texts. */
START_TEST(any_group_and_nothing_else)
{
    const char *path = in_folder(&dir, "grads.h5");
    float value[6] = {1, -0.0f, 3, 4, 5, 6}, got[6] = {0};
    tt_piece piece = {.first = 0, .count = 6, .data = value};
    tt_tensor_row row = {.name = "grads/h.11.attn.qkv.weight",
                         .dims = 2,
                         .dim = {2, 3},
                         .pieces = 1,
                         .piece = &piece};
    tt_state state = {.tensors = 1, .tensor = &row};
    ck_assert_int_eq(tt_ckpt_save(NULL, path, &state, NULL, 0, &err), TT_OK);
    piece.data = got;
    ck_assert_msg(tt_ckpt_load(NULL, path, &state, false, &err) == TT_OK, "%s", err.text);
    ck_assert_mem_eq(value, got, sizeof value);
    state.tensors = 0; /* a state of nothing is a state */
    ck_assert_int_eq(tt_ckpt_save(NULL, path, &state, NULL, 0, &err), TT_OK);
    ck_assert_msg(tt_ckpt_load(NULL, path, &state, false, &err) == TT_OK, "%s", err.text);
}
END_TEST

/* Kept as 16-bit numbers: a tensor of more than one chunk, and not the owner's first elements. */
enum { SKIPPED = 5, MANY = TT_CKPT_CHUNK + 77 };
static int64_t largest_run;

/* After `fails_at` calls, as a disk may fail at any of them. */
static int64_t fails_at = INT64_MAX;

static tt_code get_halves(const void *owner, int64_t at, int64_t count, float *out, tt_err *why)
{
    if (fails_at-- == 0) {
        return tt_fail(why, TT_EWORLD, "the halves are gone");
    }
    const uint16_t *half = *(uint16_t *const *)owner;
    largest_run = count > largest_run ? count : largest_run;
    for (int64_t i = 0; i < count; i++) {
        out[i] = (float)half[at + i] / 4;
    }
    return TT_OK;
}

static tt_code put_halves(const void *owner, int64_t at, int64_t count, const float *in,
                          tt_err *why)
{
    if (fails_at-- == 0) {
        return tt_fail(why, TT_EWORLD, "the halves are full");
    }
    uint16_t *half = *(uint16_t *const *)owner;
    largest_run = count > largest_run ? count : largest_run;
    for (int64_t i = 0; i < count; i++) {
        half[at + i] = (uint16_t)(in[i] * 4);
    }
    return TT_OK;
}

START_TEST(elements_of_another_form)
{
    const char *path = in_folder(&dir, "form.h5");
    uint16_t *kept = calloc(SKIPPED + MANY, sizeof *kept),
             *got = calloc(SKIPPED + MANY, sizeof *got);
    float *plain = calloc(MANY, sizeof *plain), rest[3] = {-1, -2, -3}, back[3] = {0};
    tt_piece piece[2] = {{.count = MANY, .at = SKIPPED, .form = {&kept, get_halves, put_halves}},
                         {.first = MANY, .count = 3, .data = rest}};
    tt_tensor_row row = {
        .name = "params/w", .dims = 1, .dim = {MANY + 3}, .pieces = 2, .piece = piece};
    tt_state state = {.tensors = 1, .tensor = &row};
    for (int i = 0; i < SKIPPED + MANY; i++) {
        kept[i] = (uint16_t)(((uint32_t)i * 2654435761u) >> 13); /* chunks differ */
    }
    ck_assert_msg(tt_ckpt_save(NULL, path, &state, NULL, 0, &err) == TT_OK, "%s", err.text);
    piece[0].form.owner = &got;
    piece[1].data = back;
    ck_assert_msg(tt_ckpt_load(NULL, path, &state, false, &err) == TT_OK, "%s", err.text);
    ck_assert_mem_eq(got + SKIPPED, kept + SKIPPED, MANY * sizeof *got);
    ck_assert_mem_eq(back, rest, sizeof rest);
    for (int i = 0; i < SKIPPED; i++) {
        ck_assert_uint_eq(got[i], 0);
    }
    ck_assert_int_eq(largest_run, TT_CKPT_CHUNK);
    /* In the file there are floats. */
    piece[0] = (tt_piece){.count = MANY, .data = plain};
    ck_assert_msg(tt_ckpt_load(NULL, path, &state, false, &err) == TT_OK, "%s", err.text);
    int wrong = 0;
    for (int i = 0; i < MANY; i++) {
        wrong += plain[i] != (float)kept[SKIPPED + i] / 4;
    }
    ck_assert_int_eq(wrong, 0);
    free(kept), free(got), free(plain);
}
END_TEST

/* Whenever they fail to come, there is no file and no part of one; whenever they fail to be put, loading
 * fails. */
START_TEST(elements_that_cannot_be_had)
{
    const char *path = in_folder(&dir, "gone.h5");
    uint16_t *kept = calloc(MANY, sizeof *kept);
    tt_piece piece = {.count = MANY, .form = {&kept, get_halves, put_halves}};
    tt_tensor_row row = {
        .name = "params/w", .dims = 1, .dim = {MANY}, .pieces = 1, .piece = &piece};
    tt_state state = {.tensors = 1, .tensor = &row};
    for (int at = 0; at < 4; at++) { /* two chunks, digested, then written */
        fails_at = at;
        ck_assert_int_eq(tt_ckpt_save(NULL, path, &state, NULL, 0, &err), TT_EWORLD);
        ck_assert_str_eq(err.text, "the halves are gone");
        ck_assert_int_eq(folder_count(&dir), 0);
    }
    fails_at = INT64_MAX;
    ck_assert_msg(tt_ckpt_save(NULL, path, &state, NULL, 0, &err) == TT_OK, "%s", err.text);
    for (int at = 0; at < 2; at++) {
        fails_at = at;
        ck_assert_int_eq(tt_ckpt_load(NULL, path, &state, false, &err), TT_EWORLD);
        ck_assert_str_eq(err.text, "the halves are full");
    }
    fails_at = INT64_MAX;
    free(kept);
}
END_TEST

/* Only a file of the same group, or nothing, may be replaced. */
START_TEST(what_may_be_replaced)
{
    const char *path = in_folder(&dir, "dump.h5");
    ck_assert_int_eq(tt_ckpt_may_replace(path, "grads", &err), TT_OK);
    fixture *f = fixture_new(CUT_WHOLE, 0, 1);
    f->state.tensors = 2; /* params/ */
    ck_assert_int_eq(tt_ckpt_save(NULL, path, &f->state, NULL, 0, &err), TT_OK);
    ck_assert_int_eq(tt_ckpt_may_replace(path, "grads", &err), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, path));
    ck_assert_int_eq(tt_ckpt_may_replace(path, "param", &err), TT_EUSER);
    f->state.scalars = 0;
    f->state.config = f->state.tokenizer = NULL;
    ck_assert_int_eq(tt_ckpt_save(NULL, path, &f->state, NULL, 0, &err), TT_OK);
    ck_assert_int_eq(tt_ckpt_may_replace(path, "params", &err), TT_OK);
    spill(path, (const unsigned char *)"text", 4);
    ck_assert_int_eq(tt_ckpt_may_replace(path, "grads", &err), TT_EUSER);
    ck_assert_int_eq(tt_ckpt_may_replace(dir.path, "grads", &err), TT_EUSER);
    free(f);
}
END_TEST

START_TEST(texts_of_any_length)
{
    const char *path = in_folder(&dir, "step-1.h5");
    enum { LONG = 200000 };
    char *yaml = malloc(LONG + 1);
    memset(yaml, 'x', LONG);
    yaml[LONG] = '\0';
    tt_text config = {0}, tokenizer = {0};
    tt_state state = {.config = yaml, .tokenizer = ""};
    ck_assert_int_eq(tt_ckpt_save(NULL, path, &state, NULL, 0, &err), TT_OK);
    ck_assert_msg(tt_ckpt_texts(path, &config, &tokenizer, &err) == TT_OK, "%s", err.text);
    ck_assert_str_eq(config.data, yaml);
    ck_assert_str_eq(tokenizer.data, "");
    tt_text_free(&config);
    tt_text_free(&tokenizer);

    state = (tt_state){.tokenizer = "h\xc3\xa9\n"};
    ck_assert_int_eq(tt_ckpt_save(NULL, path, &state, NULL, 0, &err), TT_OK);
    ck_assert_int_eq(tt_ckpt_texts(path, NULL, &tokenizer, &err), TT_OK);
    ck_assert_str_eq(tokenizer.data, "h\xc3\xa9\n");
    ck_assert_int_eq(tt_ckpt_texts(path, &config, NULL, &err), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, "holds no /config"));
    tt_text_free(&config);
    tt_text_free(&tokenizer);
    free(yaml);
}
END_TEST

/* --- refusals --------------------------------------------------------------------------------- */

/* Loads into a state changed by the caller; nothing may be filled. */
static void refused(const char *path, fixture *got, tt_code code, const char *words)
{
    fill_marks(got);
    fixture *marks = fixture_new(CUT_WHOLE, 0, 1);
    fill_marks(marks);
    ck_assert_int_eq(load(path, got, false), code);
    ck_assert_msg(strstr(err.text, words) != NULL, "%s", err.text);
    ck_assert_mem_eq(got->value, marks->value, sizeof marks->value);
    ck_assert_int_eq(got->step, 0);
    free(marks);
    free(got);
}

START_TEST(other_models)
{
    const char *path = in_folder(&dir, "step-1.h5");
    free(saved_fixture(5, path));
    fixture *got = fixture_new(CUT_WHOLE, 0, 1);
    got->row[0].dim[0] = 60;
    refused(path, got, TT_EUSER, "checkpoint of another model: params/wte is [61,129] in");
    got = fixture_new(CUT_WHOLE, 0, 1);
    got->row[3].dims = 1;
    refused(path, got, TT_EUSER, "step-1.h5, [97] here");
    got = fixture_new(CUT_WHOLE, 0, 1);
    got->row[1].name = "params/h.1.ln_1.weight";
    refused(path, got, TT_EUSER, "step-1.h5 lacks params/h.1.ln_1.weight");
    got = fixture_new(CUT_WHOLE, 0, 1);
    got->state.tensors = TENSORS - 1; /* a smaller model does not quietly take a part */
    refused(path, got, TT_EUSER, "has adam_v/h.0.mlp.fc.bias, which this model lacks");
    got = fixture_new(CUT_WHOLE, 0, 1);
    got->scalar[1].name = "tokens";
    refused(path, got, TT_EWORLD, "is damaged: it lacks state/tokens");
    got = fixture_new(CUT_WHOLE, 0, 1);
    got->scalar[0] = (tt_scalar_row){.name = "step", .f64 = &got->odd};
    refused(path, got, TT_EUSER, "state/step in");
}
END_TEST

/* A scalar that files may lack keeps its value when one does, and is read where it is. */
START_TEST(optional_scalars)
{
    const char *path = in_folder(&dir, "step-1.h5");
    fixture *saved = saved_fixture(1, path), *got = fixture_new(CUT_WHOLE, 0, 1);
    double kept = 3;
    got->scalar[2].optional = true;
    got->scalar[3] = (tt_scalar_row){.name = "newer", .f64 = &kept, .optional = true};
    ck_assert_int_eq(load(path, got, false), TT_OK);
    ck_assert(kept == 3 && got->scale == saved->scale && got->step == saved->step);
    free(got);
    got = fixture_new(CUT_WHOLE, 0, 1);
    got->scalar[0] = (tt_scalar_row){.name = "step", .f64 = &got->odd, .optional = true};
    refused(path, got, TT_EUSER, "state/step in"); /* it is there, as something else */
    free(saved);
}
END_TEST

START_TEST(other_files)
{
    const char *path = in_folder(&dir, "step-1.h5");
    refused(path, fixture_new(CUT_WHOLE, 0, 1), TT_EUSER, "step-1.h5 does not exist");
    spill(path, "", 0);
    refused(path, fixture_new(CUT_WHOLE, 0, 1), TT_EUSER, "it is not an HDF5 file");
    spill(path, "model:\n  layers: 2\n", 19);
    refused(path, fixture_new(CUT_WHOLE, 0, 1), TT_EUSER, "it is not an HDF5 file");
    refused(dir.path, fixture_new(CUT_WHOLE, 0, 1), TT_EUSER, "it is not a regular file");
    refused(in_folder(&dir, "step-1.h5/x"), fixture_new(CUT_WHOLE, 0, 1), TT_EUSER,
            "Not a directory");
}
END_TEST

/* --- disks that fail -------------------------------------------------------------------------- */

#ifdef TUTTI_FAULTS
START_TEST(full_disk_keeps_the_old_file)
{
    const char *path = in_folder(&dir, "step-1.h5");
    tt_fault fault = {.kind = TT_FAULT_ENOSPC, .rank = -1, .step = -1};
    fixture *old = saved_fixture(1, path), *f = fixture_new(CUT_WHOLE, 0, 1);
    fill_values(f, 2);
    ck_assert_int_eq(tt_ckpt_save(NULL, path, &f->state, &fault, 2, &err), TT_EWORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "No space left on device"));
    ck_assert_int_eq(folder_count(&dir), 1);
    ck_assert_int_eq(load(path, f, false), TT_OK);
    ck_assert(pieces_match(f, old, "") && scalars_match(f, old));
    free(f);
    free(old);
}
END_TEST
#endif

#ifdef TUTTI_FAULTS
/* Killed at any point: the name holds the old file or the new one, never half, and the next save
 * is not in the way of what the dead one left. */
START_TEST(killed_while_saving)
{
    static const char *const point[] = {"before_save", "mid_save", "before_rename", "after_rename"};
    const char *path = in_folder(&dir, "step-1.h5");
    fixture *old = saved_fixture(1, path), *f = fixture_new(CUT_WHOLE, 0, 1);
    fixture *got = fixture_new(CUT_WHOLE, 0, 1);
    for (int i = 0; i < 4; i++) {
        int status;
        tt_fault fault = {.kind = TT_FAULT_CRASH_AT, .rank = -1, .step = 7};
        strcpy(fault.point, point[i]);
        fill_values(f, 2);
        pid_t child = fork();
        if (child == 0) {
            tt_ckpt_save(NULL, path, &f->state, &fault, 7, &err);
            _exit(0); /* not reached */
        }
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        bool half = i == 1 || i == 2;
        ck_assert_int_eq(folder_count(&dir), half ? 2 : 1);
        ck_assert_int_eq(load(path, got, false), TT_OK);
        ck_assert(pieces_match(got, i < 3 ? old : f, ""));
        ck_assert_int_eq(tt_ckpt_save(NULL, path, &old->state, &fault, 8, &err), TT_OK);
        ck_assert_int_eq(folder_count(&dir), 1);
    }
    free(got);
    free(f);
    free(old);
}
END_TEST
#endif

/* A real limit: refused before HDF5 meets it. */
START_TEST(file_size_limits)
{
    const char *path = in_folder(&dir, "step-1.h5");
    struct rlimit before, limit;
    int64_t length;
    fixture *old = saved_fixture(1, path), *f = fixture_new(CUT_WHOLE, 0, 1);
    free(slurp(path, &length));
    fill_values(f, 2);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    for (int64_t room = 0; room < length; room += length / 2 - 1) {
        limit.rlim_cur = (rlim_t)room;
        int set = setrlimit(RLIMIT_FSIZE, &limit); /* no asserts under it: Check writes files too */
        tt_code rc = tt_ckpt_save(NULL, path, &f->state, NULL, 2, &err);
        set |= setrlimit(RLIMIT_FSIZE, &before);
        ck_assert_int_eq(set, 0);
        ck_assert_int_eq(rc, TT_EWORLD);
        ck_assert_msg(strstr(err.text, "step-1.h5: File too large") != NULL, "%s", err.text);
        ck_assert_int_eq(folder_count(&dir), 1);
    }
    signal(SIGXFSZ, handler);
    ck_assert_int_eq(load(path, f, false), TT_OK);
    ck_assert(pieces_match(f, old, "") && scalars_match(f, old));
    fill_values(f, 2);
    ck_assert_int_eq(tt_ckpt_save(NULL, path, &f->state, NULL, 2, &err), TT_OK);
    free(f);
    free(old);
}
END_TEST

START_TEST(stale_part_is_replaced)
{
    tt_text out = {0};
    spill(in_folder(&dir, ".step-1.h5.part"), "half", 4);
    const char *path = in_folder(&dir, "step-1.h5");
    free(saved_fixture(1, path));
    ck_assert_int_eq(folder_count(&dir), 1);
    ck_assert_int_eq(mkfifo(in_folder(&dir, ".step-1.h5.part"), 0600), 0);
    path = in_folder(&dir, "step-1.h5");
    free(saved_fixture(2, path));
    ck_assert_int_eq(folder_count(&dir), 1);
    ck_assert_int_eq(tt_ckpt_verify(path, &out, &err), TT_OK);
    tt_text_free(&out);
}
END_TEST

/* --- damage ----------------------------------------------------------------------------------- */

/* A small checkpoint as bytes: damage is tried at many places. */
static unsigned char *small_file(const char *path, fixture **saved, int64_t *length)
{
    *saved = fixture_new(CUT_WHOLE, 0, 1);
    fill_values(*saved, 11);
    (*saved)->state.tensor = (*saved)->row + 6; /* three tensors of two groups */
    (*saved)->state.tensors = 3;
    ck_assert_int_eq(tt_ckpt_save(NULL, path, &(*saved)->state, NULL, 0, &err), TT_OK);
    return slurp(path, length);
}

/* Runs everything that reads a file. True when it was refused by verify. */
static bool refused_by_verify(const char *path, fixture *got)
{
    tt_text text = {0}, config = {0}, tokenizer = {0};
    char *latest = NULL;
    tt_code rc = tt_ckpt_verify(path, &text, &err);
    tt_err other;
    tt_ckpt_info(path, &text, &other);
    tt_ckpt_texts(path, &config, &tokenizer, &other);
    tt_ckpt_latest(NULL, dir.path, NULL, &latest, &text, &other);
    tt_code loaded = tt_ckpt_load(NULL, path, &got->state, false, &other);
    ck_assert_msg((rc == TT_OK) == (loaded == TT_OK), "%s, %s", err.text, other.text);
    free(latest);
    tt_text_free(&text);
    tt_text_free(&config);
    tt_text_free(&tokenizer);
    return rc != TT_OK;
}

/* Every flip is either found or was in space that holds nothing. */
START_TEST(flipped_bytes)
{
    const char *path = in_folder(&dir, "step-1.h5");
    int64_t length, found = 0, tried = 0;
    fixture *f;
    unsigned char *bytes = small_file(path, &f, &length);
    fixture *got = fixture_new(CUT_WHOLE, 0, 1);
    got->state.tensor = got->row + 6;
    got->state.tensors = 3;
    const char *stride = getenv("TUTTI_TEST_STRIDE"); /* 1 tries every byte */
    for (int64_t at = 0; at < length; at += stride != NULL ? atoi(stride) : 67, tried++) {
        bytes[at] ^= (unsigned char)(1 << at % 8);
        spill(path, bytes, length);
        bytes[at] ^= (unsigned char)(1 << at % 8);
        fill_marks(got);
        if (refused_by_verify(path, got)) {
            found++;
        } else {
            for (int i = 6; i < TENSORS; i++) {
                ck_assert_mem_eq(got->value[i], f->value[i], 4 * (size_t)elements_of(i));
            }
            ck_assert(scalars_match(got, f));
        }
    }
    ck_assert_msg(found * 4 > tried, "%lld of %lld", (long long)found, (long long)tried);
    free(got);
    free(f);
    free(bytes);
}
END_TEST

/* Every flip in a tensor, a scalar, a text or a digest is found, and named. */
START_TEST(flipped_payload)
{
    const char *path = in_folder(&dir, "step-1.h5");
    int64_t length;
    fixture *f;
    unsigned char *bytes = small_file(path, &f, &length);
    const struct {
        const void *needle;
        size_t size;
        const char *words;
    } parts[] = {
        {f->value[7], 64, "adam_v/h.0.ln_1.weight: digest"},
        {f->value[7] + 240, 64, "adam_v/h.0.ln_1.weight: digest"},
        {f->value[8], 12, "adam_v/h.0.mlp.fc.bias: digest"},
        {f->state.config, 40, "config: digest"},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        unsigned char *at = memmem(bytes, (size_t)length, parts[i].needle, parts[i].size);
        ck_assert_ptr_nonnull(at);
        at[9] ^= 0x10;
        spill(path, bytes, length);
        at[9] ^= 0x10;
        tt_text out = {0};
        ck_assert_int_eq(tt_ckpt_verify(path, &out, &err), TT_EWORLD);
        ck_assert_msg(strstr(out.data, parts[i].words) != NULL, "%s", out.data);
        ck_assert_ptr_nonnull(strstr(err.text, "1 of 11 digests do not match"));
        tt_text_free(&out);
        ck_assert_int_eq(load(path, f, false), TT_EWORLD);
        ck_assert_ptr_nonnull(strstr(err.text, "does not match its digest"));
    }
    unsigned char *at = memmem(bytes, (size_t)length, &f->tokens, 8);
    ck_assert_ptr_nonnull(at);
    at[3] ^= 1;
    spill(path, bytes, length);
    ck_assert_int_eq(load(path, f, false), TT_EWORLD);
    free(f);
    free(bytes);
}
END_TEST

START_TEST(truncated_anywhere)
{
    const char *path = in_folder(&dir, "step-1.h5");
    int64_t length;
    fixture *f;
    unsigned char *bytes = small_file(path, &f, &length);
    for (int64_t keep = 0; keep < length; keep += keep < 100 ? 13 : 197) {
        spill(path, bytes, keep);
        ck_assert(refused_by_verify(path, f));
    }
    spill(path, bytes, length - 1);
    ck_assert(refused_by_verify(path, f));
    ck_assert_int_eq(err.code, TT_EWORLD);
    ck_assert_msg(strstr(err.text, "step-1.h5 is damaged or cut short") != NULL, "%s", err.text);
    spill(path, bytes, length);
    ck_assert(!refused_by_verify(path, f));
    free(f);
    free(bytes);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("ckpt save and load");
    TCase *tc = tcase_create("save_load");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, every_bit_comes_back);
    tcase_add_test(tc, params_only_leaves_the_rest);
    tcase_add_test(tc, any_group_and_nothing_else);
    tcase_add_test(tc, elements_of_another_form);
    tcase_add_test(tc, elements_that_cannot_be_had);
    tcase_add_test(tc, what_may_be_replaced);
    tcase_add_test(tc, texts_of_any_length);
    tcase_add_test(tc, other_models);
    tcase_add_test(tc, optional_scalars);
    tcase_add_test(tc, other_files);
#ifdef TUTTI_FAULTS
    tcase_add_test(tc, full_disk_keeps_the_old_file);
    tcase_add_test(tc, killed_while_saving);
#endif
    tcase_add_test(tc, file_size_limits);
    tcase_add_test(tc, stale_part_is_replaced);
    tcase_add_test(tc, flipped_bytes);
    tcase_add_test(tc, flipped_payload);
    tcase_add_test(tc, truncated_anywhere);
    tcase_set_timeout(tc, 60);
    suite_add_tcase(suite, tc);
    return suite;
}

TT_TEST_MAIN(make_suite)
