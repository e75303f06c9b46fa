/* test_ledger.c: the page says the plan's numbers; each technique's cell is the difference of two plans;
 * the largest micro-batch is the largest; a step's price is the sum of its parts. */
#include "train_test.h"
#include "tutti/train/ledger.h"

static tt_config bf16_config(const char *run)
{
    tt_config config = tiny_config(run);
    set(&config, "precision.compute", "bf16");
    return config;
}

/* On machines of so many ranks. */
static void make_on(tt_blueprint *p, const tt_config *config, int neighbours, int ranks)
{
    must(tt_blueprint_imagine(p, config, 257, neighbours, ranks, 1, NULL, &err_));
}

/* Each rank on a machine of its own. */
static void make(tt_blueprint *p, const tt_config *config, int ranks)
{
    make_on(p, config, 1, ranks);
}

/* The row of this name; NULL: it has none. */
static const tt_effect *row(const tt_ledger *ledger, const char *name)
{
    for (int i = 0; i < ledger->effects; i++) {
        if (strcmp(ledger->effect[i].name, name) == 0) {
            return &ledger->effect[i];
        }
    }
    return NULL;
}

/* A row is on or off and changes these bytes, in the order of the groups. */
static void expect(const tt_ledger *ledger, const char *name, bool on, int64_t weights,
                   int64_t gradients, int64_t optimizer, int64_t activations)
{
    const tt_effect *e = row(ledger, name);
    ck_assert_msg(e != NULL && e->possible, "%s: %s", name, e != NULL ? e->why.text : "no row");
    const int64_t wanted[] = {weights, gradients, optimizer, activations};
    ck_assert_msg(e->on == on, "%s", name);
    for (int g = 0; g < 4; g++) {
        ck_assert_msg(e->change[g] == wanted[g], "%s, %s: %lld, not %lld", name, tt_group_names[g],
                      (long long)e->change[g], (long long)wanted[g]);
    }
}

static int64_t cost(int64_t count, size_t size)
{
    return tt_count(tt_arena_cost(tt_bytes(count, size)));
}

/* A tiny BF16 model on two ranks with ZeRO 1, by hand. */
START_TEST(cells_by_hand)
{
    tt_config config = bf16_config("cells");
    tt_ledger ledger;
    tt_blueprint p;
    set(&config, "memory.zero", "1");
    set(&config, "memory.pack_weights", "false");
    make(&p, &config, 2);
    must(tt_ledger_make(&ledger, &p, 0, NULL, NULL, &err_));
    const int64_t N = p.params.total, mine = p.shard.elements;
    ck_assert_int_lt(mine, N);
    const tt_effect *bf16 = row(&ledger, "bf16");
    ck_assert(bf16->on && bf16->possible);
    ck_assert_int_eq(bf16->change[TT_GROUP_WEIGHTS], cost(N, 2) - cost(N, 4));
    ck_assert_int_lt(bf16->change[TT_GROUP_ACTIVATIONS], 0);
    expect(&ledger, "fp32 masters", true, 0, 0, cost(mine, 4), 0);
    expect(&ledger, "split master", false, 0, 0, cost(mine, 2) - cost(mine, 4), 0);
    expect(&ledger, "no master", false, 0, 0, -cost(mine, 4), 0);
    expect(&ledger, "zero 1", true, 0, 0, 3 * (cost(mine, 4) - cost(N, 4)), 0);
    expect(&ledger, "accumulation", false, 0, 0, 0, 0); /* of one sequence there is no half */
    expect(&ledger, "packed weights", false,
           tt_count(tt_model_packed_bytes(&p.shape, &p.params, &p.ops, NULL)), 0, 0, 0);
    /* Fixed point has 8 bytes, and buckets of half as many parameters. */
    const tt_effect *exact = row(&ledger, "exact mode");
    ck_assert(!exact->on && exact->possible);
    ck_assert_int_eq(exact->change[TT_GROUP_GRADIENTS],
                     cost(N, 8) - cost(N, 4) + cost(p.params.count, 8));
    ck_assert_ptr_null(row(&ledger, "fp16"));
    ck_assert_ptr_null(row(&ledger, "fp32 operations"));
    tt_blueprint_free(&p);
}
END_TEST

static int64_t packed_cost(const tt_blueprint *p)
{
    const tt_held held = tt_blueprint_held(p, 0);
    return tt_count(tt_model_packed_bytes(&p->shape, &p->params, &p->ops, &held));
}

/* A rank's part of what so many hold together. */
static int64_t part(int64_t bytes, int ranks)
{
    return tt_ceil_div(bytes, ranks);
}

/* What is held once is a rank's by its part; ZeRO 0 holds nothing so, ZeRO 2 and 3 pieces and rings. Six
 * ranks on machines of three, by hand. */
START_TEST(shared_cells_by_hand)
{
    enum { R = 6, N = 3 };
    tt_config config = bf16_config("shared");
    tt_ledger ledger;
    tt_blueprint p, zero2, zero3;
    set(&config, "model.layers", "5");
    set(&config, "dist.bucket_mb", "1");
    make_on(&p, &config, N, R);
    must(tt_ledger_make(&ledger, &p, 0, NULL, NULL, &err_));
    const int64_t all = p.params.total, mine = p.shard.elements, packed = packed_cost(&p);
    const int64_t copies = cost(all, 2) + packed, parts = part(cost(all, 2), N) + part(packed, N);
    ck_assert_int_eq(p.node_ranks, N);
    expect(&ledger, "shared weights", true, parts - copies, 0, 0, 0);
    expect(&ledger, "packed weights", true, part(packed, N), 0, 0, 0);
    expect(&ledger, "zero 1", true, parts - copies, 0, 3 * (cost(mine, 4) - cost(all, 4)), 0);
    /* Gradients: pieces and a ring for the whole, and what waits between the two machines. */
    set(&config, "memory.zero", "2");
    make_on(&zero2, &config, N, R);
    ck_assert(zero2.slices && !zero2.rotates && zero2.staging > 0);
    const int64_t ring = zero2.gradient_ring.elements;
    ck_assert_int_eq(ring, all); /* one bucket: one group */
    const int64_t sums = cost(mine, 4) + cost(ring, 4) + cost(tt_count(zero2.staging), 1);
    expect(&ledger, "zero 2", false, 0, sums - cost(all, 4), 0, 0);
    /* Weights: its pieces beside its part of the ring. */
    set(&config, "memory.zero", "3");
    make_on(&zero3, &config, N, R);
    ck_assert(zero3.rotates && zero3.weight_ring.places < zero3.weight_ring.count + 1);
    const int64_t turns =
        cost(mine, 2) + part(cost(zero3.weight_ring.elements, 2), N) + part(packed_cost(&zero3), N);
    expect(&ledger, "zero 3", false, turns - parts, sums - cost(all, 4), 0, 0);
    tt_blueprint_free(&p);
    tt_blueprint_free(&zero2);
    tt_blueprint_free(&zero3);
}
END_TEST

/* Blocks large enough for buckets of their own: what is held in turn is less than all. */
static tt_config rings_config(const char *run, int zero)
{
    tt_config config = bf16_config(run);
    set(&config, "model.layers", "6");
    set(&config, "model.channels", "160");
    set(&config, "model.ffn", "640");
    set(&config, "dist.bucket_mb", "1");
    set(&config, "memory.zero", "%d", zero);
    return config;
}

/* The page of ZeRO 3 on machines of four, of which two at a time share: numbers of elements, and a node
 * that holds twice what is held once. */
START_TEST(page_of_pieces_and_rings)
{
    tt_config config = rings_config("rings", 3);
    tt_blueprint p;
    tt_ledger ledger;
    tt_text page = {0};
    char line[256], rank[32], node[32];
    set(&config, "dist.node_ranks", "2");
    make_on(&p, &config, 4, 8);
    must(tt_ledger_make(&ledger, &p, 0, NULL, NULL, &err_));
    ck_assert_int_eq(p.node_ranks, 2);
    ck_assert_int_eq(p.neighbours, 4);
    const long long N = p.params.total, mine = p.cut.elements;
    const long long weights = p.weight_ring.elements, gradients = p.gradient_ring.elements;
    ck_assert_int_lt(weights, N);
    ck_assert_int_lt(gradients, N);
    tt_ledger_text(&ledger, &page);
    const int64_t once = cost(weights, 2);
    tt_human_bytes((double)once / 2, rank);
    tt_human_bytes((double)once * 2, node);
    snprintf(line, sizeof line,
             "\n    in turn      %12s %12s   %lld of %lld x 2 bytes (bf16), once for 2 ranks\n",
             rank, node, weights, N);
    ck_assert_msg(strstr(page.data, line) != NULL, "no '%s' in\n%s", line, page.data);
    tt_human_bytes((double)cost(mine, 2), rank);
    tt_human_bytes(4 * (double)cost(mine, 2), node);
    snprintf(line, sizeof line, "\n    pieces       %12s %12s   %lld of %lld x 2 bytes (bf16)\n",
             rank, node, mine, N);
    ck_assert_msg(strstr(page.data, line) != NULL, "no '%s' in\n%s", line, page.data);
    snprintf(line, sizeof line, "   %lld of %lld x 4 bytes\n", mine, N);
    ck_assert_msg(strstr(page.data, line) != NULL, "no '%s' in\n%s", line, page.data);
    snprintf(line, sizeof line, "   %lld of %lld x 4 bytes\n", gradients, N);
    ck_assert_msg(strstr(page.data, line) != NULL, "no '%s' in\n%s", line, page.data);
    ck_assert_ptr_nonnull(strstr(page.data, "   pieces from and to 3 other nodes\n"));
    ck_assert_ptr_nonnull(strstr(page.data, "   4 ranks on a node, 8 in all; 2 share memory\n"));
    ck_assert_ptr_nonnull(strstr(page.data, "Wire per step and rank\n"));
    tt_text_free(&page);
    tt_blueprint_free(&p);
}
END_TEST

/* What all map is there once a machine, and a rank's part of it where ranks share. MPI's buffers go with
 * its own reductions. */
START_TEST(libraries_by_hand)
{
    enum { MIB = 1 << 20 };
    tt_config config = bf16_config("libraries");
    tt_blueprint p;
    set(&config, "model.vocab", "250000");
    set(&config, "dist.bucket_mb", "16");
    const int64_t mapped = 25 * MIB, own = 9 * MIB + MIB / 8;
    make_on(&p, &config, 4, 4);
    ck_assert_uint_eq(p.plan.mapped, mapped);
    ck_assert_uint_eq(p.plan.libraries, own + 8 * MIB + part(mapped, 4));
    tt_blueprint_free(&p);
    make_on(&p, &config, 1, 4);
    const int64_t all = 4 * p.params.total;
    ck_assert(all > 8 * MIB && all < 40 * MIB);
    ck_assert_uint_eq(p.plan.libraries, own + all + mapped);
    tt_blueprint_free(&p);
    set(&config, "model.channels", "100");
    make_on(&p, &config, 1, 4);
    const int64_t most = 4 * (p.buckets.bucket[0].range.end - p.buckets.bucket[0].range.first);
    ck_assert(4 * p.params.total > 40 * MIB && most > 8 * MIB && most < 20 * MIB);
    ck_assert_uint_eq(p.plan.libraries, own + 40 * MIB + mapped);
    tt_blueprint_free(&p);
    set(&config, "dist.overlap", "false");
    make_on(&p, &config, 1, 4);
    ck_assert_uint_eq(p.plan.libraries, own + most + mapped);
    tt_blueprint_free(&p);
    set(&config, "memory.zero", "2"); /* pieces are sent */
    make_on(&p, &config, 1, 4);
    ck_assert_uint_eq(p.plan.libraries, own + 8 * MIB + mapped);
    tt_blueprint_free(&p);
}
END_TEST

/* Of several micro-batches ZeRO 2 keeps all sums and sends them once, or its own and sends each time. */
START_TEST(keepings_by_hand)
{
    enum { K = 3 };
    tt_config config = rings_config("keepings", 2);
    tt_blueprint p, q;
    tt_ledger ledger;
    tt_text page = {0};
    make(&p, &config, 2);
    must(tt_ledger_make(&ledger, &p, 0, NULL, NULL, &err_));
    ck_assert_int_eq(ledger.keepings, 0); /* one micro-batch: no difference */
    ck_assert(p.slices);
    set(&config, "batch.accumulate", "%d", K);
    make(&q, &config, 2);
    must(tt_ledger_make(&ledger, &q, 0, NULL, NULL, &err_));
    ck_assert_int_eq(ledger.keepings, TT_KEEPINGS);
    const tt_keeping *whole = &ledger.keeping[0], *pieces = &ledger.keeping[1];
    ck_assert(whole->chosen && !pieces->chosen && !q.slices);
    ck_assert_uint_eq(whole->bytes, q.plan.bytes[TT_MEM_GRADIENTS]);
    ck_assert_int_eq(whole->wire_bytes, q.plan.wire_bytes);
    ck_assert_uint_eq(pieces->bytes, p.plan.bytes[TT_MEM_GRADIENTS]);
    /* and after each micro-batch but the last a word about who leaves */
    ck_assert_int_eq(pieces->wire_bytes - whole->wire_bytes, (K - 1) * (4 * q.params.total + 8));
    ck_assert_int_eq(pieces->wire_calls - whole->wire_calls, (K - 1) * (q.buckets.count + 1));
    tt_ledger_text(&ledger, &page);
    ck_assert_ptr_nonnull(strstr(page.data, "\n  gradients whole "));
    ck_assert_ptr_nonnull(strstr(page.data, " in memory (chosen)\n  gradients pieces "));
    tt_text_free(&page);
    tt_ledger_json(&ledger, &page);
    ck_assert_ptr_nonnull(
        strstr(page.data, "\"gradients\": [{\"name\": \"whole\", \"chosen\": true"));
    tt_text_free(&page);
    tt_blueprint_free(&p);
    tt_blueprint_free(&q);
    set(&config, "memory.gradients", "pieces");
    make(&q, &config, 2);
    must(tt_ledger_make(&ledger, &q, 0, NULL, NULL, &err_));
    ck_assert(!ledger.keeping[0].chosen && ledger.keeping[1].chosen && q.slices);
    tt_ledger_text(&ledger, &page);
    ck_assert_ptr_nonnull(strstr(page.data, "Wire per step and rank, with accumulate 3\n"));
    tt_text_free(&page);
    tt_blueprint_free(&q);
}
END_TEST

/* What a row says of a technique that is off is what comes true when it is switched on, and then the
 * row says the same of it. */
START_TEST(cells_come_true)
{
    static const struct {
        const char *name, *key, *value;
    } switches[] = {{"fp8", "precision.compute", "fp8"},
                    {"split master", "precision.master", "split"},
                    {"no master", "precision.master", "none"},
                    {"accumulation", "batch.micro", "1"},
                    {"recompute selective", "memory.recompute", "selective"},
                    {"recompute sqrt", "memory.recompute", "sqrt"},
                    {"recompute block", "memory.recompute", "block"},
                    {"zero 1", "memory.zero", "1"},
                    {"zero 2", "memory.zero", "2"},
                    {"zero 3", "memory.zero", "3"},
                    {"exact mode", "run.exact", "true"}};
    tt_config off = bf16_config("switch");
    tt_blueprint p, q;
    tt_ledger before, after;
    set(&off, "model.layers", "5");
    set(&off, "batch.sequences", "12");
    set(&off, "batch.micro", "4");
    set(&off, "memory.zero", "0");
    set(&off, "run.exact", "false");
    tt_config on = off;
    set(&on, switches[_i].key, "%s", switches[_i].value);
    make_on(&p, &off, 2, 3);
    make_on(&q, &on, 2, 3);
    must(tt_ledger_make(&before, &p, 0, NULL, NULL, &err_));
    must(tt_ledger_make(&after, &q, 0, NULL, NULL, &err_));
    const tt_effect *was = row(&before, switches[_i].name), *is = row(&after, switches[_i].name);
    ck_assert(!was->on && was->possible && is->on && is->possible);
    ck_assert_int_eq(was->change[TT_GROUP_TOTAL], tt_count(q.plan.total + q.plan.libraries) -
                                                      tt_count(p.plan.total + p.plan.libraries));
    ck_assert_int_ne(was->change[TT_GROUP_TOTAL], 0);
    ck_assert_mem_eq(was->change, is->change, sizeof is->change);
    tt_blueprint_free(&p);
    tt_blueprint_free(&q);
}
END_TEST

/* Every row in every format: a number, or a reason; the total is the sum; what is on is. */
static const char *const computes[] = {"fp32", "tf32", "bf16", "fp16", "fp8"};
enum { COMPUTES = sizeof computes / sizeof *computes };

START_TEST(every_row_in_every_format)
{
    tt_config config = tiny_config("formats");
    tt_blueprint p;
    tt_ledger ledger;
    tt_text page = {0};
    set(&config, "precision.compute", "%s", computes[_i]);
    set(&config, "precision.fp32_ops", "[head]");
    set(&config, "batch.sequences", "12");
    make(&p, &config, 2);
    must(tt_ledger_make(&ledger, &p, 0, NULL, NULL, &err_));
    ck_assert_int_ge(ledger.effects, 13);
    for (int i = 0; i < ledger.effects; i++) {
        const tt_effect *e = &ledger.effect[i];
        int64_t sum = 0;
        for (int g = 0; g < TT_GROUP_TOTAL; g++) {
            sum += e->change[g];
        }
        ck_assert_msg(sum == e->change[TT_GROUP_TOTAL], "%s", e->name);
        ck_assert_msg(e->possible == (e->why.text[0] == '\0'), "%s", e->name);
    }
    for (int c = 1; c < COMPUTES; c++) { /* all but FP32 have a row */
        const tt_effect *e = row(&ledger, computes[c]);
        ck_assert_msg(e != NULL ? e->on == (c == _i) : c != _i, "%s", computes[c]);
    }
    ck_assert(row(&ledger, "accumulation")->on);
    ck_assert(row(&ledger, "fp32 masters")->on && !row(&ledger, "split master")->on);
    ck_assert(row(&ledger, "fp32 operations")->on);
    /* Without masters there is nothing to copy for the head; in FP32 there is no other kind. */
    ck_assert(!row(&ledger, "no master")->possible);
    tt_ledger_text(&ledger, &page);
    ck_assert_ptr_nonnull(strstr(page.data, "            -            - [1]\n"));
    ck_assert_ptr_nonnull(strstr(page.data, "\n  [1] precision."));
    tt_text_free(&page);
    tt_blueprint_free(&p);
}
END_TEST

START_TEST(page_says_the_numbers)
{
    tt_config config = bf16_config("page");
    tt_blueprint p;
    tt_ledger ledger;
    tt_text page = {0};
    char line[128], rank[32], node[32];
    size_t group[TT_GROUPS];
    set(&config, "dist.node_shared", "false");
    make_on(&p, &config, 4, 6);
    p.plan.libraries = 12345678;
    p.plan.mapped = 0;
    must(tt_ledger_make(&ledger, &p, 0, NULL, NULL, &err_));
    tt_group_bytes(p.plan.bytes, p.plan.libraries, group);
    ck_assert_uint_eq(group[TT_GROUP_LIBRARIES], 12345678);
    ck_assert_uint_eq(group[TT_GROUP_WEIGHTS],
                      p.plan.bytes[TT_MEM_WEIGHTS] + p.plan.bytes[TT_MEM_PACKED]);
    size_t sum = 0;
    for (int g = 0; g < TT_GROUP_TOTAL; g++) {
        sum += group[g];
    }
    ck_assert_uint_eq(group[TT_GROUP_TOTAL], sum);
    tt_ledger_text(&ledger, &page);
    for (int g = 0; g < TT_GROUPS; g++) {
        tt_human_bytes((double)group[g], rank);
        tt_human_bytes(4.0 * (double)group[g], node);
        snprintf(line, sizeof line, "\n  %-14s %12s %12s", tt_group_names[g], rank, node);
        ck_assert_msg(strstr(page.data, line) != NULL, "no '%s' in\n%s", line, page.data);
    }
    snprintf(line, sizeof line, "%lld parameters", (long long)p.plan.parameters);
    ck_assert_ptr_nonnull(strstr(page.data, line));
    snprintf(line, sizeof line, "   %lld x 2 bytes (bf16)\n", (long long)p.params.total);
    ck_assert_ptr_nonnull(strstr(page.data, line));
    ck_assert_ptr_nonnull(strstr(page.data, "sequences 6 = micro 1 x accumulate 1 x ranks 6"));
    ck_assert_ptr_nonnull(strstr(page.data, "   4 ranks on a node, 6 in all\n"));
    snprintf(line, sizeof line, "collectives    %12lld\n", (long long)p.plan.wire_calls);
    ck_assert_ptr_nonnull(strstr(page.data, line));
    ck_assert_ptr_nonnull(strstr(page.data, "Wire per step and rank (whatever accumulate is)\n"));
    ck_assert_ptr_null(strstr(page.data, "exact mode:"));
    ck_assert_ptr_null(strstr(page.data, "largest micro"));
    tt_text_free(&page);
    tt_blueprint_free(&p);
    set(&config, "run.exact", "true"); /* says what it costs */
    make_on(&p, &config, 100, 4);
    must(tt_ledger_make(&ledger, &p, 0, NULL, NULL, &err_));
    ck_assert_int_eq(p.neighbours, 4); /* there are no more */
    tt_ledger_text(&ledger, &page);
    ck_assert_ptr_nonnull(strstr(page.data, " x 8 bytes (exact mode: 8, not 4; "));
    tt_text_free(&page);
    tt_blueprint_free(&p);
}
END_TEST

static size_t total_with(const tt_config *config, int64_t micro)
{
    tt_config other = *config;
    tt_blueprint p;
    set(&other, "batch.micro", "%lld", (long long)micro);
    make(&p, &other, 2);
    const size_t total = p.plan.total + p.plan.libraries;
    tt_blueprint_free(&p);
    return total;
}

/* The largest micro-batch fits and the next one does not, to the byte. */
START_TEST(largest_micro_is_the_largest)
{
    tt_config config = bf16_config("largest");
    tt_blueprint p;
    tt_ledger ledger;
    make(&p, &config, 2);
    static const int64_t sizes[] = {1, 2, 3, 4, 17, 64, 100};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t total = total_with(&config, sizes[i]);
        ck_assert_uint_lt(total, total_with(&config, sizes[i] + 1));
        must(tt_ledger_make(&ledger, &p, tt_count(total), NULL, NULL, &err_));
        ck_assert_str_eq(ledger.choice[0].name, "none");
        ck_assert_int_eq(ledger.choice[0].largest, sizes[i]);
        ck_assert(ledger.choice[0].fits);
        must(tt_ledger_make(&ledger, &p, tt_count(total) - 1, NULL, NULL, &err_));
        ck_assert_int_eq(ledger.choice[0].largest, sizes[i] - 1);
        ck_assert(ledger.choice[0].fits == (sizes[i] > 1));
    }
    tt_text page = {0};
    must(tt_ledger_make(&ledger, &p, 1, NULL, NULL, &err_));
    tt_ledger_text(&ledger, &page);
    ck_assert_ptr_nonnull(strstr(page.data, "     no      none fits\n"));
    tt_text_free(&page);
    must(tt_ledger_make(&ledger, &p, (int64_t)1 << 60, NULL, NULL, &err_));
    ck_assert_int_eq(ledger.choice[0].largest, TT_LARGEST_MICRO);
    tt_ledger_text(&ledger, &page);
    ck_assert_ptr_nonnull(strstr(page.data, "1000000000 and on"));
    tt_text_free(&page);
    tt_blueprint_free(&p);
}
END_TEST

/* Two blocks, of which the first goes forward again: two norms, qkv, attention, proj and fc, but not
 * down, whose result nobody reads; or two norms and GELU. Segments of two blocks are one segment. */
START_TEST(time_of_what_is_computed_again)
{
    static const struct {
        const char *name;
        int applications;
    } wanted[] = {{"none", 0}, {"selective", 3}, {"sqrt", 0}, {"block", 6}, {"block 1", 6}};
    tt_config config = bf16_config("again");
    tt_blueprint p;
    tt_ledger ledger;
    tt_price price = {.step = 1, .rounds = 1};
    tt_text page = {0};
    set(&config, "batch.sequences", "12");
    set(&config, "memory.recompute", "block");
    set(&config, "memory.recompute_blocks", "1");
    make(&p, &config, 2);
    for (int row = 0; row < TT_ROWS; row++) {
        price.again[row] = 1.0 / 4096; /* seconds a token; a rank has 6 * 8 of them */
    }
    must(tt_ledger_make(&ledger, &p, 1 << 20, &price, NULL, &err_));
    ck_assert_int_eq(ledger.choices, 5);
    for (int i = 0; i < ledger.choices; i++) {
        ck_assert_str_eq(ledger.choice[i].name, wanted[i].name);
        ck_assert_double_eq(ledger.choice[i].slower, wanted[i].applications * 48.0 / 4096);
    }
    ck_assert_mem_eq(ledger.choice[4].bytes, ledger.choice[3].bytes, sizeof p.plan.bytes);
    ck_assert_uint_eq(ledger.choice[4].bytes[TT_GROUP_TOTAL], p.plan.total + p.plan.libraries);
    tt_ledger_text(&ledger, &page);
    ck_assert_ptr_nonnull(strstr(page.data, "+7.0 %\n"));
    ck_assert_ptr_nonnull(strstr(page.data, ", 1 of 2 blocks computed again, 1 at a time ("));
    ck_assert_ptr_nonnull(strstr(page.data, " GFLOP more are computed again ("));
    tt_text_free(&page);
    tt_blueprint_free(&p);
}
END_TEST

/* In every format, and with all that changes what a step does. */
static const struct {
    const char *key[3], *value[3];
} priced[] = {{{"precision.compute"}, {"fp32"}},
              {{"precision.compute"}, {"tf32"}},
              {{"precision.compute"}, {"fp16"}},
              {{"precision.compute", "fp8.recipe"}, {"fp8", "delayed"}},
              {{"precision.compute", "precision.master"}, {"bf16", "split"}},
              {{"precision.compute", "precision.master", "precision.rounding"},
               {"bf16", "none", "stochastic"}},
              {{"precision.compute", "precision.fp32_ops"}, {"bf16", "[head, fc]"}},
              {{"memory.optimizer_file"}, {"nowhere/file"}}, /* it is not opened */
              {{"run.exact", "model.dropout", "memory.pack_weights"}, {"true", "0.1", "false"}}};
enum { PRICED = sizeof priced / sizeof *priced };

START_TEST(price_is_the_sum)
{
    tt_config config = bf16_config("price");
    tt_blueprint p;
    tt_price price;
    set(&config, "model.vocab", "5000"); /* more than are measured */
    set(&config, "batch.sequences", "12");
    for (int j = 0; j < 3 && priced[_i].key[j]; j++) {
        set(&config, priced[_i].key[j], "%s", priced[_i].value[j]);
    }
    make(&p, &config, 2);
    must(tt_price_measure(&price, &p, &err_));
    ck_assert_int_ge(price.rounds, 3);
    ck_assert_int_eq(price.rows, 8);
    ck_assert(price.stem > 0 && price.forward > 0 && price.backward > 0 && price.crown > 0 &&
              price.update > 0);
    const bool fp8 = p.fp8.sites > 0; /* where GELU alone is never computed again */
    double again = 0;
    for (int i = 0; i < TT_ROWS; i++) {
        again += i == TT_ROW_GELU ? 0 : price.again[i] * (i == TT_ROW_NORM ? 2 : 1);
    }
    ck_assert(apart(again, price.forward) < 1e-12);
    ck_assert(fp8 ? price.again[TT_ROW_GELU] == 0 : price.again[TT_ROW_GELU] > 0);
    const double token = price.stem + price.crown + 2 * (price.forward + price.backward);
    ck_assert(apart(price.step, price.update + 6 * 8 * token) < 1e-12);
    tt_blueprint_free(&p);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/ledger");
    TCase *tests = tcase_create("ledger");
    tcase_set_timeout(tests, 0);
    tcase_add_unchecked_fixture(tests, open_folder, close_folder);
    tcase_add_test(tests, cells_by_hand);
    tcase_add_test(tests, shared_cells_by_hand);
    tcase_add_test(tests, page_of_pieces_and_rings);
    tcase_add_test(tests, keepings_by_hand);
    tcase_add_test(tests, libraries_by_hand);
    tcase_add_loop_test(tests, cells_come_true, 0, 11);
    tcase_add_loop_test(tests, every_row_in_every_format, 0, COMPUTES);
    tcase_add_test(tests, page_says_the_numbers);
    tcase_add_test(tests, largest_micro_is_the_largest);
    tcase_add_test(tests, time_of_what_is_computed_again);
    tcase_add_loop_test(tests, price_is_the_sum, 0, PRICED);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
