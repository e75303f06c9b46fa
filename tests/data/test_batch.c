/* test_batch.c: samples and batches: one step is the same sequences however it is split, every epoch
 * is a permutation, and masks are where documents end. */
#include "data_test.h"

enum { T_MAX = 64 };

static const char *const documents[] = {
    "a",       "bb",           "ccc",   "The quick brown fox jumps over the lazy dog.",
    "1234567", "0123456789ab", "xyzzy", "Tutti: now everybody together."};
enum { DOCUMENTS = sizeof documents / sizeof documents[0] };

/* The training part as one array, read at once. */
static int32_t all[1024];
static int64_t total;
static tt_tokens *tokens;

static void setup(void)
{
    open_dir();
    build_documents("t.h5", 0, DOCUMENTS, documents);
    tokens = open_tokens("t.h5", false);
    tt_err err;
    total = tt_tokens_count(tokens);
    ck_assert_int_eq(tt_tokens_read(tokens, 0, total, all, &err), TT_OK);
}

static void teardown(void)
{
    tt_tokens_close(tokens);
    close_dir();
}

static tt_sampler sampler_of(const char *mode, int64_t T, bool shuffle)
{
    tt_sampler sampler;
    tt_err err = {0};
    ck_assert_msg(tt_sampler_open(&sampler, tokens, mode, 7, T, shuffle, &err) == TT_OK, "%s",
                  err.text);
    return sampler;
}

static void *make_batch(tt_batch *batch, int64_t B, int64_t T)
{
    size_t bytes = tt_batch_bytes(B, T);
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    ck_assert_ptr_nonnull(memory);
    memset(memory, 0x5a, bytes);
    tt_batch_place(batch, B, T, memory);
    return memory;
}

/* A row must be what the header says about its element. */
static void check_row(const tt_sampler *sampler, const tt_batch *batch, int64_t b)
{
    int64_t T = batch->T, i = tt_sampler_element(sampler, batch->sample[b]);
    int64_t first = i * T, end = first + T + 1;
    if (sampler->documents) {
        tt_tokens_document(tokens, i, &first, &end);
    }
    for (int64_t t = 0; t < T; t++) {
        bool has = first + t < end, predicts = first + t + 1 < end;
        ck_assert_int_eq(batch->token[b * T + t], has ? all[first + t] : 256);
        ck_assert_int_eq(batch->target[b * T + t], predicts ? all[first + t + 1] : -1);
    }
}

START_TEST(rows_are_windows_or_documents)
{
    const char *const modes[] = {"stream", "documents"};
    const int64_t contexts[] = {1, 2, 5, 16, T_MAX};
    tt_err err;
    for (int m = 0; m < 2; m++) {
        for (int c = 0; c < 5; c++) {
            int64_t T = contexts[c], B = 3;
            tt_sampler sampler = sampler_of(modes[m], T, true);
            ck_assert_int_eq(sampler.samples, m ? DOCUMENTS : (total - 1) / T);
            tt_batch batch;
            void *memory = make_batch(&batch, B, T);
            tt_split split = {.sequences = 12, .micro = B, .accumulate = 2, .ranks = 2};
            for (int64_t step = 0; step < 20; step++) {
                for (int64_t k = 0; k < 2; k++) {
                    for (int r = 0; r < 2; r++) {
                        ck_assert_int_eq(tt_batch_fill(&batch, &sampler, &split, step, k, r, &err),
                                         TT_OK);
                        for (int64_t b = 0; b < B; b++) {
                            ck_assert_int_eq(batch.sample[b], step * 12 + (k * 2 + r) * B + b);
                            check_row(&sampler, &batch, b);
                        }
                    }
                }
            }
            free(memory);
        }
    }
}
END_TEST

/* Collects one step, row by global sample, from every rank and micro-batch. */
static void collect(tt_sampler *sampler, int64_t S, int64_t B, int R, int64_t step, int32_t *token,
                    int32_t *target, int *seen)
{
    int64_t T = sampler->context;
    tt_split split;
    tt_err err = {0};
    ck_assert_msg(tt_split_resolve(&split, S, B, 0, R, &err) == TT_OK, "%s", err.text);
    tt_batch batch;
    void *memory = make_batch(&batch, B, T);
    for (int64_t k = 0; k < split.accumulate; k++) {
        for (int r = 0; r < R; r++) {
            ck_assert_int_eq(tt_batch_fill(&batch, sampler, &split, step, k, r, &err), TT_OK);
            for (int64_t b = 0; b < B; b++) {
                int64_t row = batch.sample[b] - step * S;
                ck_assert_int_ge(row, 0);
                ck_assert_int_lt(row, S);
                seen[row]++;
                memcpy(token + row * T, batch.token + b * T, sizeof(int32_t) * (size_t)T);
                memcpy(target + row * T, batch.target + b * T, sizeof(int32_t) * (size_t)T);
            }
        }
    }
    free(memory);
}

START_TEST(a_step_does_not_depend_on_the_split)
{
    enum { S = 24, T = 6 };
    const char *const modes[] = {"stream", "documents"};
    for (int m = 0; m < 2; m++) {
        tt_sampler sampler = sampler_of(modes[m], T, true);
        for (int64_t step = 0; step < 5; step++) {
            static int32_t token[S * T], target[S * T], token2[S * T], target2[S * T];
            int seen[S] = {0};
            collect(&sampler, S, S, 1, step, token, target, seen);
            for (int R = 1; R <= 24; R++) {
                for (int64_t B = 1; B <= 24; B++) {
                    if (S % (R * B) != 0) {
                        continue;
                    }
                    int hits[S] = {0};
                    collect(&sampler, S, B, R, step, token2, target2, hits);
                    for (int i = 0; i < S; i++) {
                        ck_assert_int_eq(hits[i], 1);
                    }
                    ck_assert_mem_eq(token, token2, sizeof token);
                    ck_assert_mem_eq(target, target2, sizeof target);
                }
            }
        }
    }
}
END_TEST

START_TEST(each_epoch_is_a_permutation)
{
    const int64_t contexts[] = {1, 2, 7, 40};
    bool moved = false, differ = false;
    for (int c = 0; c < 4; c++) {
        tt_sampler sampler = sampler_of("stream", contexts[c], true);
        int64_t n = sampler.samples;
        for (int64_t epoch = 0; epoch < 4; epoch++) {
            int hits[1024] = {0};
            for (int64_t i = 0; i < n; i++) {
                int64_t e = tt_sampler_element(&sampler, epoch * n + i);
                ck_assert_int_ge(e, 0);
                ck_assert_int_lt(e, n);
                hits[e]++;
                moved |= e != i;
                differ |= e != tt_sampler_element(&sampler, i);
            }
            for (int64_t i = 0; i < n; i++) {
                ck_assert_int_eq(hits[i], 1);
            }
        }
    }
    ck_assert(moved);  /* it shuffles */
    ck_assert(differ); /* and epochs differ */
}
END_TEST

START_TEST(another_seed_is_another_order)
{
    tt_sampler a = sampler_of("stream", 1, true), b = a;
    b.seed = 8;
    bool differ = false;
    for (int64_t i = 0; i < a.samples; i++) {
        differ |= tt_sampler_element(&a, i) != tt_sampler_element(&b, i);
    }
    ck_assert(differ);
}
END_TEST

/* S does not divide n, and S is larger than n: the stream runs on over the edge. */
START_TEST(steps_run_over_the_edge_of_an_epoch)
{
    const int64_t batches[] = {3, 5, 20};
    tt_sampler sampler = sampler_of("documents", 4, true);
    int64_t n = sampler.samples;
    ck_assert_int_eq(n, 8);
    for (int c = 0; c < 3; c++) {
        int64_t S = batches[c];
        int hits[DOCUMENTS] = {0};
        tt_split split = {.sequences = S, .micro = S, .accumulate = 1, .ranks = 1};
        tt_batch batch;
        tt_err err;
        void *memory = make_batch(&batch, S, 4);
        for (int64_t step = 0; step < 2 * n; step++) { /* 2*S epochs in all */
            ck_assert_int_eq(tt_batch_fill(&batch, &sampler, &split, step, 0, 0, &err), TT_OK);
            for (int64_t b = 0; b < S; b++) {
                hits[tt_sampler_element(&sampler, batch.sample[b])]++;
                check_row(&sampler, &batch, b);
            }
        }
        for (int i = 0; i < DOCUMENTS; i++) {
            ck_assert_int_eq(hits[i], 2 * S);
        }
        free(memory);
    }
}
END_TEST

START_TEST(evaluation_reads_in_order_and_masks_the_tail)
{
    enum { T = 10, B = 4 };
    tt_sampler sampler = sampler_of("stream", T, false);
    int64_t n = sampler.samples, rows = 0;
    tt_batch batch;
    tt_err err;
    void *memory = make_batch(&batch, B, T);
    ck_assert_int_ne(n % B, 0); /* else there is no tail to test */
    for (int64_t first = 0; first < n + 2 * B; first += B) {
        ck_assert_int_eq(tt_batch_fill_range(&batch, &sampler, first, n, &err), TT_OK);
        for (int64_t b = 0; b < B; b++) {
            ck_assert_int_eq(batch.sample[b], first + b);
            if (first + b < n) {
                ck_assert_int_eq(tt_sampler_element(&sampler, first + b), first + b);
                check_row(&sampler, &batch, b);
                rows++;
                continue;
            }
            for (int64_t t = 0; t < T; t++) {
                ck_assert_int_eq(batch.token[b * T + t], 256);
                ck_assert_int_eq(batch.target[b * T + t], -1);
            }
        }
    }
    ck_assert_int_eq(rows, n);
    free(memory);
}
END_TEST

START_TEST(documents_mask_what_they_lack)
{
    enum { T = 8 };
    tt_sampler sampler = sampler_of("documents", T, false);
    tt_batch batch;
    tt_err err;
    void *memory = make_batch(&batch, DOCUMENTS, T);
    ck_assert_int_eq(tt_batch_fill_range(&batch, &sampler, 0, DOCUMENTS, &err), TT_OK);
    for (int i = 0; i < DOCUMENTS; i++) {
        /* With its end token a document of s bytes has s + 1 tokens, so s targets. */
        int64_t targets = 0, wanted = (int64_t)strlen(documents[i]);
        for (int t = 0; t < T; t++) {
            targets += batch.target[i * T + t] >= 0;
        }
        ck_assert_int_eq(targets, wanted < T ? wanted : T);
        if (wanted <= T) {
            ck_assert_int_eq(batch.target[i * T + wanted - 1], 256);
        }
    }
    free(memory);
}
END_TEST

START_TEST(parts_too_short_are_refused)
{
    tt_sampler sampler;
    tt_err err;
    ck_assert_int_eq(tt_sampler_open(&sampler, tokens, "stream", 0, total - 1, true, &err), TT_OK);
    ck_assert_int_eq(sampler.samples, 1);
    char words[64];
    snprintf(words, sizeof words, "t.h5 holds %lld tokens", (long long)total);
    expect_error(tt_sampler_open(&sampler, tokens, "stream", 0, total, true, &err), TT_EUSER,
                 words);
    snprintf(words, sizeof words, "model.context %lld", (long long)total);
    expect_error(tt_sampler_open(&sampler, tokens, "stream", 0, total, true, &err), TT_EUSER,
                 words);
    ck_assert_int_eq(tt_sampler_open(&sampler, tokens, "documents", 0, total, true, &err), TT_OK);
    expect_error(tt_sampler_open(&sampler, tokens, "pages", 0, 4, true, &err), TT_EUSER,
                 "data.mode \"pages\" is not known; allowed: stream, documents");
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("batch");
    TCase *c = tcase_create("batch");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, rows_are_windows_or_documents);
    tcase_add_test(c, a_step_does_not_depend_on_the_split);
    tcase_add_test(c, each_epoch_is_a_permutation);
    tcase_add_test(c, another_seed_is_another_order);
    tcase_add_test(c, steps_run_over_the_edge_of_an_epoch);
    tcase_add_test(c, evaluation_reads_in_order_and_masks_the_tail);
    tcase_add_test(c, documents_mask_what_they_lack);
    tcase_add_test(c, parts_too_short_are_refused);
    suite_add_tcase(s, c);
    return s;
}

TT_TEST_MAIN(suite)
