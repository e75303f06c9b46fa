/* mpi_numerics.c: the census of a step: the same however the batch is split, no bit of what is learned
 * changed by it, and written of a step that was skipped above all. quick: no */
#define TT_MPI_TEST
#include "train_test.h"

enum { SEQUENCES = 12, STEPS = 3 }; /* 12: divides by 1, 2, 3 and 4 ranks */

static const struct {
    const char *compute, *exact, *loss_scale, *recipe, *backward, *ops, *master, *dropout;
} kinds[] = {
    {"fp16", "true", "65536", "current", "bf16", "", "fp32", "0.1"},
    {"fp16", "true", "1e12", "current", "bf16", "", "fp32", "0.1"}, /* no step survives */
    {"fp16", "true", "1", "current", "bf16", "head,fc", "fp32", "0"},
    {"bf16", "true", "none", "current", "bf16", "", "split", "0"},
    {"fp8", "true", "none", "delayed", "e5m2", "", "fp32", "0.1"},
    {"fp8", "true", "none", "mxfp8", "e5m2", "attention", "fp32", "0"},
    {"tf32", "true", "none", "current", "bf16", "", "fp32", "0"},
    {"fp16", "false", "1", "current", "bf16", "", "fp32", "0.1"},
    {"fp32", "false", "none", "current", "bf16", "", "fp32", "0.1"},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static tt_config kind_config(const char *run, int kind)
{
    tt_config config = tiny_config(run);
    set(&config, "precision.compute", "%s", kinds[kind].compute);
    set(&config, "run.exact", "%s", kinds[kind].exact);
    set(&config, "precision.loss_scale", "%s", kinds[kind].loss_scale);
    set(&config, "fp8.recipe", "%s", kinds[kind].recipe);
    set(&config, "fp8.backward", "%s", kinds[kind].backward);
    set(&config, "fp8.history", "2");
    set(&config, "precision.fp32_ops", "%s", kinds[kind].ops);
    set(&config, "precision.master", "%s", kinds[kind].master);
    set(&config, "model.dropout", "%s", kinds[kind].dropout);
    set(&config, "data.mode", "documents");
    set(&config, "batch.sequences", "%d", SEQUENCES);
    set(&config, "run.numerics_every", "1");
    return config;
}

/* A group of a record. */
static const tt_census *group(const tt_record *record, tt_part part, int row)
{
    return &record->numerics[(int)part * (int)TT_ROLES + row];
}

static tt_census all_of(const tt_record *record)
{
    tt_census sum = {0};
    for (int i = 0; i < TT_CENSUS_GROUPS; i++) {
        sum.values += record->numerics[i].values;
        sum.inf += record->numerics[i].inf;
        sum.nan += record->numerics[i].nan;
        sum.overflow += record->numerics[i].overflow;
        sum.underflow += record->numerics[i].underflow;
    }
    return sum;
}

/* In exact mode all groups of all steps; else those of the first passes. */
static bool same_counts(const tt_record *a, const tt_record *b, bool exact)
{
    const int groups = exact ? TT_CENSUS_GROUPS : (int)TT_PART_GRADIENTS * (int)TT_ROLES;
    return memcmp(a->numerics, b->numerics, (size_t)groups * sizeof *a->numerics) == 0;
}

/* Every value of every kind of tensor is met once: written anew from the shape. */
static void all_are_counted(const tt_trainer *t, const tt_record *record)
{
    const tt_params *params = &t->print.params;
    const tt_shape *s = &t->print.shape;
    const int64_t M = SEQUENCES * s->T, L = s->L;
    int64_t of_role[TT_ROLES] = {0};
    for (int p = 0; p < params->count; p++) {
        of_role[params->param[p].role] += params->param[p].count;
    }
    for (int role = 0; role < (int)TT_ROLES; role++) {
        const int64_t updated = record->skipped ? 0 : of_role[role];
        ck_assert(everywhere(group(record, TT_PART_GRADIENTS, role)->values == of_role[role]));
        ck_assert(everywhere(group(record, TT_PART_WEIGHTS, role)->values == updated));
    }
    /* x once more than blocks, with the last one's output; then in the order of the slots */
    const int64_t wide[] = {(L + 1) * s->C, L * s->C, L * (s->H + 2 * s->G) * s->D,
                            L * s->C,       L * s->C, L * s->C,
                            L * s->F,       L * s->F, s->C};
    for (int slot = 0; slot < 9; slot++) {
        const int64_t gelu = slot == 7 ? 0 : M * wide[slot];
        ck_assert(everywhere(group(record, TT_PART_FORWARD, slot)->values == M * wide[slot]));
        ck_assert(everywhere(group(record, TT_PART_BACKWARD, slot)->values == gelu));
    }
    ck_assert(everywhere(group(record, TT_PART_BACKWARD, 9)->values ==
                         record->tokens * s->vocab_used)); /* logits */
}

START_TEST(any_split_has_the_same_counts)
{
    const bool exact = strcmp(kinds[_i].exact, "true") == 0;
    const int64_t per_rank = SEQUENCES / tt_test_world.size;
    tt_config config = kind_config("split", _i), own = alone_config(&config, SEQUENCES);
    for (int64_t B = 1; B <= per_rank; B++) {
        if (per_rank % B != 0) {
            continue;
        }
        tt_trainer whole, t, silent;
        tt_record wanted, record, none;
        set(&config, "batch.micro", "%lld", (long long)B);
        set(&config, "batch.accumulate", "0");
        set(&config, "memory.zero", "%lld", (long long)(B % 2));
        set(&config, "run.threads", "%lld", (long long)(1 + B % 2));
        tt_config plain = config;
        set(&plain, "run.numerics_every", "0");
        open_trainer(&whole, &own, &alone);
        open_trainer(&t, &config, &tt_test_world);
        open_trainer(&silent, &plain, &tt_test_world);
        for (int i = 0; i < (exact ? STEPS : 1); i++) {
            step_once(&whole, &wanted);
            step_once(&t, &record);
            step_once(&silent, &none);
            ck_assert(everywhere(none.numerics == NULL));
            ck_assert(everywhere(same_state(&t, &silent)));
            ck_assert_msg(everywhere(same_counts(&record, &wanted, exact)), "kind %d, step %d", _i,
                          i + 1);
            all_are_counted(&t, &record);
            all_are_counted(&whole, &wanted);
            ck_assert(everywhere(record.skipped == (_i == 1)));
        }
        const tt_census sum = all_of(&record);
        ck_assert(everywhere((sum.overflow > 0) == (_i == 1)));
        ck_assert(everywhere((sum.underflow > 0) ==
                                 (strcmp(config.precision.compute, "fp16") == 0 && _i != 1) ||
                             strcmp(config.precision.compute, "fp8") == 0));
        tt_trainer_close(&t);
        tt_trainer_close(&whole);
        tt_trainer_close(&silent);
    }
}
END_TEST

/* Weights in FP8 are rounded where they are packed: of each step, once, whoever packs them, and whatever
 * came before. With ZeRO 3 they are rounded whenever they come, and not counted. */
START_TEST(rounded_weights_are_counted_once)
{
    const int zero = _i % 4;
    tt_config config = tiny_config("rounded");
    tt_trainer t;
    tt_record record;
    set(&config, "precision.compute", "fp8");
    set(&config, "batch.sequences", "%d", SEQUENCES);
    set(&config, "run.numerics_every", "2");
    set(&config, "memory.zero", "%d", zero);
    set(&config, "dist.node_shared", _i < 4 ? "false" : "true");
    open_trainer(&t, &config, &tt_test_world);
    const tt_params *params = &t.print.params;
    int64_t of_role[TT_ROLES] = {0};
    int counted = 0;
    for (int p = 0; p < params->count; p++) {
        of_role[params->param[p].role] += params->param[p].count;
    }
    for (int step = 1; step <= 4; step++) {
        tt_err err = {TT_OK, ""};
        tt_request request = {.code = TT_OK};
        must(tt_step(&t, &request, &record,
                     &err)); /* weights are on their way when the next begins */
        for (int role = 0; role < (int)TT_ROLES && step % 2 == 0; role++) {
            const int64_t values = group(&record, TT_PART_WEIGHTS_FP8, role)->values;
            ck_assert_msg(everywhere(values == 0 || values == of_role[role]),
                          "step %d, role %d: %lld of %lld", step, role, (long long)values,
                          (long long)of_role[role]);
            counted += values > 0;
        }
    }
    ck_assert_int_eq(counted, t.print.rotates ? 0 : 2 * 4); /* qkv, proj, fc, down */
    tt_trainer_close(&t);
}
END_TEST

/* Poisoned on one rank: the step is skipped, and its census says where. */
START_TEST(a_skipped_step_is_counted)
{
    tt_config config = tiny_config(_i == 0 ? "skipped-0" : "skipped-1");
    tt_trainer t;
    tt_text lines = {0};
    set(&config, "run.exact", _i == 0 ? "false" : "true");
    set(&config, "run.numerics_every", "2");
    set(&config, "run.steps", "5");
    setenv("TUTTI_FAULT", "nan_grad:rank=0,step=2", 1);
    open_trainer(&t, &config, &tt_test_world);
    unsetenv("TUTTI_FAULT");
    must(tt_trainer_run(&t, &err_));
    const bool kept = t.progress.step == 5 && t.progress.updates == 4;
    tt_trainer_close(&t);
    ck_assert(everywhere(kept));
    const char *file = in_folder("skipped-%d/numerics.jsonl", _i);
    must(tt_read_file(file, 1 << 20, &lines, &err_));
    const char *second =
        strstr(lines.data, "{\"step\": 2, \"numerics\": {\"forward/x\": {\"values\": ");
    const char *fourth = strstr(lines.data, "\n{\"step\": 4, \"numerics\": {");
    ck_assert(everywhere(second == lines.data && fourth != NULL));
    ck_assert(everywhere(memcmp(lines.data + lines.length - 4, "}}}\n", 4) == 0));
    const char *wte = strstr(second, "\"gradients/wte\": ");
    char words[128];
    snprintf(words, sizeof words,
             _i == 0 ? "\"values\": %d, \"inf\": 0, \"nan\": 1, \"overflow\": 0, "
                     : "\"values\": %d, \"inf\": 0, \"nan\": 0, \"overflow\": 1, ",
             257 * 10);
    ck_assert_msg(everywhere(wte != NULL && strstr(wte, words) == wte + 18), "%.100s", wte);
    const char *weights = strstr(second, "\"weights/");
    ck_assert(everywhere(weights != NULL && weights > fourth)); /* of the fourth alone */
    tt_text_free(&lines);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *s = suite_create("numerics");
    TCase *c = tcase_create("numerics");
    tcase_set_timeout(c, 0);
    tcase_add_unchecked_fixture(c, open_folder, close_folder);
    tcase_add_loop_test(c, any_split_has_the_same_counts, 0, KINDS);
    tcase_add_loop_test(c, rounded_weights_are_counted_once, 0, 8);
    tcase_add_loop_test(c, a_skipped_step_is_counted, 0, 2);
    suite_add_tcase(s, c);
    return s;
}

TT_MPI_TEST_MAIN(make_suite)
