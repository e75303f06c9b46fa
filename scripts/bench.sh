#!/usr/bin/env bash
# bench.sh: every benchmark of `tutti bench`, as Markdown.
#
#   scripts/bench.sh [FOLDER] [--repeat N] [--step-repeat N] [--to SIZE] [--only NAME] [key=value ...]
#
# Writes FOLDER/bench.md (default: build) and what it was made from, the JSON lines of each benchmark,
# FOLDER/bench/NAME.jsonl: peak, gemm, attention, step, exact (normal and exact mode in turn),
# recompute (each choice in turn), formats (a step of one sequence in every format, in turn), wire (the same
# step on 2 ranks of one thread that share memory and that do not), checkpoint (a save beside the disk that TMPDIR
# names, and beside steps of one sequence, on 2 ranks of one thread), small (a small model on 2 ranks), allreduce (2 ranks). Keys change the model of all but `small`; default GPT-2 124M, micro-batches of 4.
# --to SIZE ends allreduce there instead of at 256 MiB.
# --only NAME measures that one anew; the page has what else lies there. TUTTI_BIN is the program,
# default build/release/tutti. Takes some minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
tutti=${TUTTI_BIN:-build/release/tutti}
folder=build
repeat=5
step_repeat=3
to=()
only=
keys=()
while (($# > 0)); do
    case $1 in
    --repeat | --step-repeat)
        [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || { echo "bench.sh: $1 needs a number" >&2; exit 2; }
        if [[ $1 == --repeat ]]; then repeat=$2; else step_repeat=$2; fi
        shift
        ;;
    --to)
        to=(--to "${2:?bench.sh: --to needs a size}")
        shift
        ;;
    --only)
        only=${2:-}
        [[ $only =~ ^(peak|gemm|attention|step|exact|recompute|formats|wire|checkpoint|small|allreduce)$ ]] ||
            { echo "bench.sh: --only needs the name of a benchmark; see --help" >&2; exit 2; }
        shift
        ;;
    -h | --help)
        sed -n '2,/^set -/s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    -*)
        echo "bench.sh: unknown argument '$1'; see --help" >&2
        exit 2
        ;;
    *=*) keys+=("$1") ;;
    *) folder=$1 ;;
    esac
    shift
done
lines=$folder/bench
mkdir -p "$lines"

# measure NAME COMMAND...: its lines.
measure() {
    [[ -z $only || $only == "$1" ]] || return 0
    echo "bench: $1" >&2
    "${@:2}" >"$lines/$1.jsonl"
}

# table NAME WITH COLUMN...: Markdown of the lines of NAME that have the key WITH. A column is "key" or
# "key:title"; one whose title ends in % is a share. Columns that no line has are left out.
table() {
    local name=$1 with=$2
    shift 2
    awk -v with="$with" -v columns="$(printf '%s\n' "$@")" '
        function get(key) {
            if (!match($0, "\"" key "\": (\"[^\"]*\"|[^,}]*)")) return ""
            value = substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 4)
            gsub(/"/, "", value)
            return value
        }
        BEGIN {
            n = split(columns, column, "\n")
            for (i = 1; i <= n; i++) {
                at = index(column[i], ":")
                key[i] = at ? substr(column[i], 1, at - 1) : column[i]
                title[i] = at ? substr(column[i], at + 1) : column[i]
            }
        }
        /"calls": 0.0, "ms": 0.0000/ { next } # a phase that this step does not have
        get(with) != "" {
            rows++
            for (i = 1; i <= n; i++) {
                cell[rows, i] = get(key[i])
                if (cell[rows, i] == "") continue
                used[i] = 1
                if (title[i] ~ /%$/) cell[rows, i] = sprintf("%.1f %%", 100 * cell[rows, i])
            }
        }
        END {
            for (i = 1; i <= n; i++) if (i in used) {
                name = title[i]; sub(/ %$/, "", name)
                head = head "| " name " "; rule = rule "|---"
            }
            print head "|"; print rule "|"
            for (r = 1; r <= rows; r++) {
                line = ""
                for (i = 1; i <= n; i++) if (i in used) line = line "| " cell[r, i] " "
                print line "|"
            }
            print ""
        }' "$lines/$name.jsonl"
}

# formats: lines of one sequence's step in every format, round by round, so that what slows the machine
# down slows all of them.
formats() {
    local round compute
    for ((round = 0; round < step_repeat; round++)); do
        for compute in bf16 fp8 fp16 tf32 fp32; do
            "$tutti" bench step "${keys[@]}" batch.micro=1 precision.loss_scale=1024 \
                "precision.compute=$compute" --repeat 1 --json | head -n 1
        done
    done
}

# wire: lines of one sequence's step on 2 ranks, sharing their node's memory and through MPI alone.
wire() {
    local near
    for near in true false; do
        scripts/run.sh -n 2 -t 600 "$tutti" bench step "${keys[@]}" batch.micro=1 batch.accumulate=1 run.threads=1 \
            "dist.node_shared=$near" --repeat "$step_repeat" --json | sed -n "1s/{/{\"shared\": $near, /p"
    done
}

# by_format: each line of formats with its time over that of BF16 in the same round; then the medians:
# COMPUTE MS RATIO RESIDENT PLANNED.
by_format() {
    sed -n 's/.*"step_ms": \([0-9.]*\).*"rss_mb": \([0-9.]*\).*"planned_mb": \([0-9.]*\).*"compute": "\([a-z0-9]*\)".*/\4 \1 \2 \3/p' \
        "$lines/formats.jsonl" | awk '
        function median(list, n,    a, i, j, t) {
            split(list, a, " ")
            for (i = 2; i <= n; i++) for (j = i; j > 1 && a[j] + 0 < a[j - 1] + 0; j--) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
            return n % 2 ? a[(n + 1) / 2] + 0 : (a[n / 2] + a[n / 2 + 1]) / 2
        }
        $1 == "bf16" { base = $2 }
        { if (!($1 in n)) order[++kinds] = $1
          n[$1]++; ms[$1] = ms[$1] " " $2; times[$1] = times[$1] " " $2 / base; rss[$1] = $3; planned[$1] = $4 }
        END { for (k = 1; k <= kinds; k++) { f = order[k]
            printf "%s %.1f %.3f %.1f %.1f\n", f, median(ms[f], n[f]), median(times[f], n[f]), rss[f], planned[f] } }'
}

# value NAME KEY: of the first line that has it.
value() { sed -n "s/.*\"$2\": \"\{0,1\}\([^\",}]*\).*/\1/p" "$lines/$1.jsonl" | head -n 1; }

page_peak() {
    printf '## The machine\n\n'
    table peak unit unit format isa threads peak_gflops:GFLOP/s
    table peak memory memory threads gb_s:GB/s
}
page_gemm() {
    local rival
    rival=$(value gemm rival)
    printf '## Matmuls, %s%s\n\n' "$(value gemm isa)" \
        "$([[ $rival == null ]] || printf ', beside %s' "$rival")"
    printf 'y = x wT (nt), dx = dy w (nn), gw += dyT x (tn). Weights are packed before (nt, nn).\n\n'
    table gemm set set threads 'geomean_of_peak:geometric mean, of peak %' 'geomean_best:of the best rounds %' \
        'lowest_of_peak:lowest %' 'geomean_against_rival:times the rival' 'geomean_speedup:times one thread'
    table gemm matmul matmul variant m:M n:N k:K threads ms gflops:GFLOP/s 'of_peak:of peak %' \
        'best_of_peak:best %' 'rival_gflops:rival GFLOP/s' 'against_rival:times the rival' 'speedup:times one thread'
}
page_attention() {
    printf '## Attention\n\nThe lower triangle: two products forward, five backward.\n\n'
    table attention attention attention case b:B t:T heads:H kv_heads:G head_size:D dropout threads ms \
        gflops:GFLOP/s 'of_peak:of peak %'
}
page_step() {
    printf '## A step\n\n'
    table step step_ms step_ms:ms tokens_per_s:tokens/s 'mfu:of peak %' ranks threads \
        tokens_per_step:'tokens a step' 'rss_mb:resident MiB' 'planned_mb:planned MiB'
    table step phase phase calls:'calls a step' ms:'ms a step' 'share:of the step %' phase_gflops:GFLOP/s \
        'of_peak:of peak %'
    printf 'Outside matmul and attention: %s of the step.\n\n' \
        "$(awk -v x="$(value step outside_matmul_and_attention)" 'BEGIN { printf "%.1f %%", 100 * x }')"
}
page_exact() {
    printf '## The same step in exact mode\n\nSteps of both modes in turn, in the same memory; the ratio is the median of those of a round.\n\n'
    table exact exact_ms normal_ms:'normal ms' exact_ms:'exact ms' exact_over_normal:'exact over normal' rounds \
        ranks threads normal_planned_mb:'normal, planned MiB' exact_planned_mb:'exact, planned MiB'
}
page_recompute() {
    printf '## A step of one sequence with each memory.recompute\n\nIn turn, in the same memory; the ratio is the median of those of a round.\n\n'
    table recompute recompute recompute ms over_none:'times none' flops_over_none:'FLOPs, times none' \
        activations_mb:'activations MiB' kept_mb:'kept MiB' planned_mb:'planned MiB'
}
page_formats() {
    printf '## A step of one sequence in every format\n\nIn turn; times BF16 is the median of the ratios within a round.\n\n'
    printf '| compute | ms | times BF16 | resident MiB | planned MiB |\n|---|---|---|---|---|\n'
    sed 's/ / | /g; s/.*/| & |/' "$lines/formats.txt"
    echo
}
page_wire() {
    printf '## What of the wire shows\n\nA step of one sequence on 2 ranks of one thread, as one micro-batch; exposed: what communication adds to the\nrank that computes longest.\n\n'
    table wire comm_exposed_ms shared:'shared memory' step_ms:ms comm_ms:'communication ms' comm_exposed_ms:'exposed ms' \
        imbalance_ms:'imbalance ms'
}
page_checkpoint() {
    printf '## A checkpoint\n\nOn 2 ranks of one thread, beside steps of one sequence; async: what a save adds to them, share: of training with\na save every 20.\n\n'
    table checkpoint row row s:seconds mb_s:MB/s of_disk:'times the disk' held_s:'standing still, s' step_s:'a step, s' 'share:share %'
}
page_small() {
    printf '## A step of a small model on 2 ranks\n\n'
    table small step_ms step_ms:ms tokens_per_s:tokens/s 'mfu:of peak %' comm_ms:'communication ms' ranks threads \
        tokens_per_step:'tokens a step'
    table small phase phase ms:'ms a step' 'share:of the step %' phase_gflops:GFLOP/s 'of_peak:of peak %'
}
page_allreduce() {
    printf '## Collectives over 2 ranks\n\nIn pieces of dist.bucket_mb; copies on both ranks at once.\n\n'
    table allreduce collective collective bytes ms algbw_gb_s:'algorithm GB/s' busbw_gb_s:'bus GB/s' \
        memcpy_gb_s:'memcpy GB/s' errors
}

# What there are lines of.
page() {
    # shellcheck disable=SC2016 # Markdown, not a command
    printf '# Measured by `make bench`\n\n'
    printf '%s, %s processors, %s. Medians; percentages are of the peak measured beside each run.\n\n' \
        "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$(getconf _NPROCESSORS_ONLN)" "$("$tutti" version | head -n 1)"
    local name
    for name in peak gemm attention step exact recompute formats wire checkpoint small allreduce; do
        if [[ -s $lines/$name.jsonl ]]; then "page_$name"; fi
    done
}

measure peak "$tutti" bench peak --repeat "$repeat" --json
measure gemm "$tutti" bench gemm --repeat "$repeat" --json "${keys[@]}"
measure attention "$tutti" bench attention --repeat "$repeat" --json "${keys[@]}"
measure step "$tutti" bench step --repeat "$step_repeat" --json "${keys[@]}"
measure exact "$tutti" bench exact --repeat $((step_repeat + 2)) --json "${keys[@]}"
measure recompute "$tutti" bench recompute batch.micro=1 --repeat $((step_repeat + 2)) --json "${keys[@]}"
measure formats formats
measure wire wire
measure checkpoint scripts/run.sh -n 2 -t 1800 "$tutti" bench checkpoint "${keys[@]}" batch.micro=1 batch.accumulate=1 \
    run.threads=1 --repeat "$step_repeat" --json
measure small scripts/run.sh -n 2 -t 600 "$tutti" bench step model.layers=4 model.heads=4 model.channels=128 \
    model.context=256 model.vocab=257 batch.accumulate=2 --repeat "$repeat" --json
measure allreduce scripts/run.sh -n 2 -t 600 "$tutti" bench allreduce --repeat "$repeat" "${to[@]}" --json
if [[ -s $lines/formats.jsonl ]]; then by_format >"$lines/formats.txt"; fi
page >"$lines/page.md"
mv "$lines/page.md" "$folder/bench.md"
echo "bench: $folder/bench.md" >&2
