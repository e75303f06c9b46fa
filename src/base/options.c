/* options.c: the rows. To add an option: a field in tt_config, a row here, and its line of README's
 * table (a test compares); parsing, overrides, checks across ranks and checkpoints follow.
 *
 * Rows of one section stand together, in the order in which they are printed and stored. Paths may
 * move from machine to machine, so no path is part of the trajectory. */
#include "tutti/base/options.h"

#include <math.h>

#define AT(section, key)                                                   \
    .path = #section "." #key, .offset = offsetof(tt_config, section.key), \
    .bytes = sizeof(((tt_config *)0)->section.key)

#define INT(section, key, text, least, most, class, line)                                 \
    {                                                                                     \
        AT(section, key), .type = TT_OPT_INT, .preset = text, .low = least, .high = most, \
                          .resume = class, .help = line                                   \
    }
#define REAL(section, key, text, least, open, class, line)                             \
    {                                                                                  \
        AT(section, key), .type = TT_OPT_REAL, .preset = text, .low = least,           \
                          .high = (double)INFINITY, .open_low = open, .resume = class, \
                          .help = line                                                 \
    }
#define SHARE(section, key, text, class, line)                                      \
    {                                                                               \
        AT(section, key), .type = TT_OPT_REAL, .preset = text, .low = 0, .high = 1, \
                          .open_high = true, .resume = class, .help = line          \
    }
#define BETWEEN(section, key, text, least, most, open, class, line)                          \
    {                                                                                        \
        AT(section, key), .type = TT_OPT_REAL, .preset = text, .low = least, .high = most,   \
                          .open_low = open, .open_high = open, .resume = class, .help = line \
    }
#define BOOL(section, key, text, class, line)                                                \
    {                                                                                        \
        AT(section, key), .type = TT_OPT_BOOL, .preset = text, .resume = class, .help = line \
    }
#define STRING(section, key, text, class, line)                                                \
    {                                                                                          \
        AT(section, key), .type = TT_OPT_STRING, .preset = text, .resume = class, .help = line \
    }
#define CHOICE(section, key, text, words, class, line)                             \
    {                                                                              \
        AT(section, key), .type = TT_OPT_CHOICE, .preset = text, .choices = words, \
                          .resume = class, .help = line                            \
    }
#define CHOICE_OR_REAL(section, key, text, words, least, most, class, line)                \
    {                                                                                      \
        AT(section, key), .type = TT_OPT_CHOICE_OR_REAL, .preset = text, .choices = words, \
                          .low = least, .high = most, .resume = class, .help = line        \
    }
#define CHOICE_OR_AUTO(section, key, text, words, class, line)                             \
    {                                                                                      \
        AT(section, key), .type = TT_OPT_CHOICE_OR_AUTO, .preset = text, .choices = words, \
                          .resume = class, .help = line                                    \
    }
#define LIST(section, key, text, words, class, line)                                              \
    {                                                                                             \
        AT(section, key), .type = TT_OPT_LIST, .preset = text, .choices = words, .resume = class, \
                          .help = line                                                            \
    }

/* Upper ends keep every product of sizes within 64 bits; 2^63 stands for "none". model.layers ends
 * where the model does (a test compares). */
#define NO_END 0x1p63
#define MANY 1e9
/* Loss scales with which the seed of backward and the largest summand of exact mode are normal FP32
 * numbers for every batch. */
#define LEAST_SCALE 1e-12
#define MOST_SCALE 1e18

/* The rows of the autocast table (model/autocast.h; a test compares). */
#define FP32_OPS                                                                              \
    "embed|norm|qkv|attention|softmax|proj|residual|fc|gelu|down|head|loss|weight_gradients|" \
    "reduction|optimizer"

const tt_option tt_options[] = {
    CHOICE(model, arch, "gpt2", "gpt2", TT_TRAJECTORY, "architecture"),
    INT(model, layers, "12", 1, 510, TT_TRAJECTORY, "transformer blocks"),
    INT(model, heads, "12", 1, 65536, TT_TRAJECTORY, "attention heads; must divide channels"),
    INT(model, kv_heads, "0", 0, 65536, TT_TRAJECTORY,
        "heads of keys and values; 0 = as many as heads"),
    INT(model, channels, "768", 1, 1 << 20, TT_TRAJECTORY, "width of the residual stream"),
    INT(model, ffn, "0", 0, 1 << 24, TT_TRAJECTORY,
        "width of the feed-forward layer; 0 = 4 * channels"),
    INT(model, vocab, "0", 0, 1 << 24, TT_TRAJECTORY,
        "vocabulary in tokens; 0 = that of the token file"),
    INT(model, context, "1024", 1, 1 << 20, TT_TRAJECTORY, "tokens per sequence"),
    SHARE(model, dropout, "0", TT_TRAJECTORY, "share of activations dropped in training"),
    BOOL(model, tie_embeddings, "true", TT_TRAJECTORY,
         "the head uses the token embedding's weights"),

    STRING(data, train, NULL, TT_FREE, "token file to train on"),
    STRING(data, valid, "", TT_FREE,
           "token file to evaluate on; empty = the part of data.train that is held out"),
    INT(data, seed, "1337", 0, NO_END, TT_TRAJECTORY, "seed of the order of samples"),
    CHOICE(data, mode, "stream", "stream|documents", TT_TRAJECTORY,
           "stream = windows of the whole text; documents = one sequence per document"),

    INT(batch, sequences, "0", 0, MANY, TT_TRAJECTORY,
        "sequences per step over all ranks; 0 = micro * accumulate * ranks"),
    INT(batch, micro, "0", 0, MANY, TT_LAYOUT,
        "sequences per micro-batch and rank; 0 = from the other two"),
    INT(batch, accumulate, "0", 0, MANY, TT_LAYOUT,
        "micro-batches per rank and step; 0 = from the other two"),

    CHOICE(optim, name, "adamw", "adamw", TT_TRAJECTORY, "optimizer"),
    REAL(optim, lr, "6e-4", 0, true, TT_TRAJECTORY, "peak learning rate"),
    SHARE(optim, beta1, "0.9", TT_TRAJECTORY, "decay of the first moment"),
    SHARE(optim, beta2, "0.95", TT_TRAJECTORY, "decay of the second moment"),
    REAL(optim, eps, "1e-8", 0, true, TT_TRAJECTORY, "added to the root of the second moment"),
    REAL(optim, weight_decay, "0.1", 0, false, TT_TRAJECTORY,
         "decoupled weight decay, on matrices only"),
    REAL(optim, clip, "1", 0, false, TT_TRAJECTORY,
         "largest global gradient norm; 0 = no clipping"),
    CHOICE(optim, schedule, "cosine", "constant|cosine|linear|wsd", TT_TRAJECTORY,
           "learning rate after the warm-up"),
    INT(optim, warmup, "0", 0, NO_END, TT_TRAJECTORY, "optimizer steps of linear warm-up"),
    INT(optim, decay, "0", 0, NO_END, TT_TRAJECTORY,
        "optimizer steps of wsd's last phase; 0 = a fifth of run.steps"),
    REAL(optim, min_lr, "0", 0, false, TT_TRAJECTORY, "learning rate at the end"),
    CHOICE(optim, lr_scaling, "none", "none|linear|sqrt", TT_TRAJECTORY,
           "scales lr with batch.sequences / optim.lr_sequences"),
    INT(optim, lr_sequences, "0", 0, MANY, TT_TRAJECTORY,
        "sequences per step that lr was chosen for"),
    INT(optim, max_skips, "20", 0, MANY, TT_FREE,
        "steps skipped in a row for a non-finite gradient before the run stops"),

    CHOICE(precision, compute, "bf16", "bf16|fp32|tf32|fp16|fp8", TT_TRAJECTORY,
           "format of weights and activations in matmuls"),
    CHOICE_OR_REAL(
        precision, loss_scale, "none", "none|dynamic", LEAST_SCALE, MOST_SCALE, TT_TRAJECTORY,
        "factor on the mean loss in backward, undone before clipping; dynamic = as large "
        "as the format bears, see scaler"),
    CHOICE(precision, master, "fp32", "fp32|split|none", TT_TRAJECTORY,
           "what the optimizer keeps of the weights; split = the same FP32 numbers in 2 bytes a "
           "parameter beside the BF16 weight, and BF16 ties away from zero; none = nothing"),
    CHOICE(precision, rounding, "nearest", "nearest|stochastic", TT_TRAJECTORY,
           "how weights without a master are rounded after an update"),
    LIST(
        precision, fp32_ops, "[]", FP32_OPS, TT_TRAJECTORY,
        "products that run in FP32, whatever compute is: qkv, attention, proj, fc, down, head; the "
        "others are FP32 already or refused"),

    BETWEEN(scaler, start, "65536", LEAST_SCALE, MOST_SCALE, false, TT_TRAJECTORY,
            "dynamic loss scale of the first step"),
    REAL(scaler, growth, "2", 1, true, TT_TRAJECTORY, "factor after scaler.interval good steps"),
    INT(scaler, interval, "2000", 1, NO_END, TT_TRAJECTORY,
        "good steps in a row after which the loss scale grows"),
    BETWEEN(scaler, backoff, "0.5", 0, 1, true, TT_TRAJECTORY,
            "factor after a step that was skipped for a non-finite gradient"),
    BETWEEN(scaler, floor, "1", LEAST_SCALE, MOST_SCALE, false, TT_TRAJECTORY,
            "least dynamic loss scale"),
    BETWEEN(scaler, cap, "16777216", LEAST_SCALE, MOST_SCALE, false, TT_TRAJECTORY,
            "largest dynamic loss scale"),

    CHOICE(fp8, recipe, "current", "current|delayed|mxfp8", TT_TRAJECTORY,
           "scales in FP8: of each sequence, of the last steps, or of every 32 numbers"),
    CHOICE(fp8, backward, "bf16", "bf16|e5m2", TT_TRAJECTORY,
           "format of the gradients that enter products in FP8"),
    INT(fp8, history, "16", 1, 1024, TT_TRAJECTORY,
        "steps whose largest magnitudes make the scales of recipe delayed"),
    INT(fp8, margin, "0", 0, 6, TT_TRAJECTORY,
        "binades left free above those magnitudes by recipe delayed"),

    INT(memory, zero, "1", 0, 3, TT_LAYOUT,
        "what ranks divide among themselves: 0 = nothing; 1 = the optimizer state; 2 = gradients "
        "too, "
        "by reduce-scatter; 3 = weights too, gathered block by block"),
    CHOICE(
        memory, gradients, "auto", "auto|whole|pieces", TT_LAYOUT,
        "with zero 2 and 3, between micro-batches a rank keeps: whole = all sums, reduced once a "
        "step; pieces = its share, reduced in every micro-batch; auto = pieces if there is one"),
    CHOICE_OR_AUTO(
        memory, recompute, "none", "none|selective|sqrt|block", TT_LAYOUT,
        "activations computed again in backward instead of kept: norms and GELU, segments of "
        "sqrt(layers) "
        "blocks, or every block; auto = the cheapest with which a rank stays below SIZE"),
    INT(memory, recompute_blocks, "0", 0, 510, TT_LAYOUT,
        "with recompute block: the first so many blocks, the others as selective; 0 = all"),
    BOOL(memory, pack_weights, "true", TT_LAYOUT,
         "the matmuls' packed copies of the weights are kept through a step: faster, at 4 bytes "
         "more "
         "per matrix element"),
    STRING(
        memory, optimizer_file, "", TT_FREE,
        "masters, m and v of each rank go to the file PATH.<rank> on a local disk, not to memory; "
        "it has no name while the run lasts"),

    BETWEEN(dist, bucket_mb, "25", 0.001, 1024, false, TT_LAYOUT,
            "largest piece of one reduction, 10^6 bytes"),
    CHOICE(dist, node_shared, "auto", "auto|true|false", TT_LAYOUT,
           "ranks of a node keep one copy of the weights (from zero 1 on) and reduce gradients in "
           "shared "
           "memory; auto = where there is room for it"),
    INT(dist, node_ranks, "0", 0, MANY, TT_LAYOUT,
        "ranks of a machine that share among themselves: as many as a NUMA domain has, to keep "
        "copies "
        "near; 0 = all"),
    CHOICE(
        dist, overlap, "auto", "auto|true|false", TT_LAYOUT,
        "reductions and gathers go on while layers are computed; auto = where that hides more than "
        "it costs, as measured at the start"),
    CHOICE(
        dist, progress_thread, "auto", "auto|true|false", TT_LAYOUT,
        "a thread calls MPI while something is under way, as data moves in its calls alone; auto = "
        "where ranks are on several machines, or a processor is free"),
    INT(dist, timeout, "600", 0, MANY, TT_FREE,
        "seconds without progress, and a few to make sure, after which a rank is named and the job "
        "ends; 0 = never"),
    INT(dist, verify_every, "100", 0, NO_END, TT_FREE,
        "steps between comparisons of the weights that ranks hold, and before each checkpoint; 0 = "
        "none"),

    STRING(run, dir, "runs/default", TT_FREE, "folder of checkpoints and metrics"),
    INT(run, steps, NULL, 1, NO_END, TT_FREE, "optimizer steps of the whole run"),
    INT(run, max_seconds, "0", 0, MANY, TT_FREE,
        "seconds after its start within which a run saves and ends, with exit code 75 as after a "
        "signal; 0 = no limit"),
    INT(run, seed, "1337", 0, NO_END, TT_TRAJECTORY, "seed of weights and dropout"),
    {AT(run, threads), .type = TT_OPT_INT, .preset = "0", .low = 0, .high = 1024, .scope = TT_LOCAL,
     .resume = TT_LAYOUT,
     .help = "threads per rank; 0 = OMP_NUM_THREADS, or the node's cores shared by its ranks"},
    INT(run, log_every, "1", 0, NO_END, TT_FREE, "steps between printed lines; 0 = none"),
    INT(run, eval_every, "0", 0, NO_END, TT_FREE, "steps between evaluations; 0 = none"),
    INT(run, eval_sequences, "64", 1, MANY, TT_FREE, "sequences per evaluation"),
    INT(run, save_every, "0", 0, NO_END, TT_FREE,
        "steps between checkpoints; 0 = only at the end of the run"),
    INT(run, keep, "3", 0, MANY, TT_FREE, "newest checkpoints kept; 0 = all"),
    INT(run, keep_every, "0", 0, NO_END, TT_FREE,
        "checkpoints of steps that are multiples of this are kept too; 0 = none"),
    BOOL(
        run, save_async, "false", TT_FREE,
        "checkpoints are written while steps go on, from a snapshot of 12 bytes per parameter that "
        "the ranks share"),
    BOOL(run, read_back, "true", TT_FREE,
         "a checkpoint is read back from the disk before it counts"),
    INT(run, numerics_every, "0", 0, NO_END, TT_FREE,
        "steps between counts of inf, NaN, overflow and underflow in numerics.jsonl; 0 = none"),
    INT(run, digest_every, "0", 0, NO_END, TT_FREE,
        "steps between digests of the weights in metrics.jsonl and of every tensor in "
        "digests.jsonl; 0 = none"),
    BOOL(run, exact, "false", TT_TRAJECTORY,
         "the same bits however the batch is split, at 4 more bytes per parameter"),
    CHOICE(run, resume, "auto", "auto|never|must", TT_FREE,
           "auto = continue from the newest checkpoint in run.dir if there is one"),
    LIST(run, allow_change, "[]", NULL, TT_FREE,
         "options that may differ from those of the run that is continued, as [optim.lr]"),
    CHOICE(run, on_nonfinite, "skip", "skip|stop", TT_FREE,
           "when a step's loss or gradient is not finite: skip = all ranks leave the step out; "
           "stop = the run ends and the state before the step is saved, unless a dynamic loss "
           "scale above its floor can mend it"),
    INT(run, replay, "0", 0, NO_END, TT_FREE,
        "make this step again from the newest checkpoint before it, look for what is not finite "
        "after every layer, and write no file; 0 = train"),
    STRING(run, init_from, "", TT_FREE, "checkpoint whose parameters a fresh run starts from"),
    STRING(run, dump_gradients, "", TT_FREE, "file that gets the mean gradient of the last step"),
    BOOL(run, trace_data, "false", TT_FREE, "list every step's sample ids in run.dir/data.jsonl"),
};

const int tt_option_count = sizeof tt_options / sizeof *tt_options;
