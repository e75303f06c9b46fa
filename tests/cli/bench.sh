#!/usr/bin/env bash
# Every benchmark as a user runs it, on shapes that take no time: text and JSON, numbers that agree with
# each other, mistakes refused.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"

small=(model.layers=2 model.heads=2 model.channels=32 model.context=32 model.vocab=257 batch.micro=1 run.threads=1)

# every NAME PATTERN TEXT...: as many lines as texts hold the pattern's key, in this order.
every() {
    local name=$1 key=$2
    shift 2
    equal "$name" "$*" "$(sed -n "s/.*\"$key\": \"\([^\"]*\)\".*/\1/p" "$work/out" | uniq | tr '\n' ' ' | sed 's/ $//')"
}

# holds NAME CONDITION: an awk condition on v["key"], the last number of each key of the output.
holds() {
    tr ',{}' '\n' <"$work/out" | awk -F'": ' -v OFS= '
        /^ *"/ { sub(/^ *"/, "", $1); v[$1] = $2 } END { exit !('"$2"') }'
    verdict "$1" $? "$(head -c 300 "$work/out" | tr '\n' '|')"
}

# --- peak ---
alone bench peak --repeat 1 run.threads=1 --json
check "bench peak" test "$code" = 0
json "bench peak is JSON" "$work/out"
every "bench peak: both formats" format fp32 bf16
every "bench peak: memory" memory read copy write
holds "bench peak: numbers" 'v["peak_gflops"] > 0 && v["gb_s"] > 0'
OMP_NUM_THREADS=2 alone bench peak --repeat 1
said "bench peak: a table" 'memory *copy *2 .* GB/s'

# --- gemm ---
alone bench gemm --shape 65x33x17 run.threads=2 --repeat 3 --json
check "bench gemm" test "$code" = 0
json "bench gemm is JSON" "$work/out"
every "bench gemm: three variants" variant nt nn tn
holds "bench gemm: numbers" 'v["m"] == 65 && v["n"] == 33 && v["k"] == 17 && v["threads"] == 2 &&
    v["gflops"] > 0 && v["of_peak"] > 0 && v["best_of_peak"] >= v["of_peak"] && v["geomean_best"] > 0'
alone bench gemm --shape 5x3x1 run.threads=1 precision.compute=fp32 --repeat 1
said "bench gemm: a table" 'given *tn *5 *3 *1 '
said "bench gemm: the mean" 'others, threads 1: geometric mean'
# One and all where threads are not said: two where the machine has them.
env -u OMP_NUM_THREADS timeout $limit "$tutti" bench gemm --shape 64x64x64 --repeat 2 --json >"$work/out" 2>"$work/err"
if (($(env -u OMP_NUM_THREADS nproc) > 1)); then
    check "bench gemm: one thread and all" grep -q '"speedup": ' "$work/out"
else
    check "bench gemm: one thread" grep -q '"threads": 1,' "$work/out"
fi

# --- optimizer_file ---
alone bench optimizer_file "${small[@]}" --repeat 2 --json
check "bench optimizer_file" test "$code" = 0
json "bench optimizer_file is JSON" "$work/out"
every "bench optimizer_file: the rows" row memory file transfer write read
holds "bench optimizer_file: numbers" 'v["ms"] > 0 && v["mb_s"] > 0 && v["file_mb"] > 0'
run 2 bench optimizer_file "${small[@]}" --repeat 1 "memory.optimizer_file=$work/state"
said "bench optimizer_file: a table" '^read .* times as long as in memory, .* MB/s of disk'
equal "bench optimizer_file: nothing is left" "" "$(find "$work" -name 'state*')"

# --- attention ---
alone bench attention "${small[@]}" --repeat 1 --json
check "bench attention" test "$code" = 0
json "bench attention is JSON" "$work/out"
every "bench attention: the cases" case model length grouped dropout
equal "bench attention: lengths" "32 256 1024 4096 32 32" \
    "$(sed -n 's/.*"forward".*"t": \([0-9]*\),.*/\1/p' "$work/out" | tr '\n' ' ' | sed 's/ $//')"
alone bench attention "${small[@]}" --repeat 1
said "bench attention: a table" '^backward dropout'

# --- step ---
run 2 bench step "${small[@]}" batch.accumulate=3 memory.zero=1 --repeat 2 --json
check "bench step, 2 ranks" test "$code" = 0
json "bench step is JSON" "$work/out"
equal "bench step: tokens a step" 192 "$(field tokens_per_step)"
awk '
    function get(key) { match($0, "\"" key "\": [^,}]*"); return substr($0, RSTART + length(key) + 4) + 0 }
    /"phase"/ { share += get("share"); ms += get("ms"); if (get("ms") < 0) bad = 1 }
    /"phase": "(matmul|attention|head matmul)/ { inside += get("share"); if (get("phase_gflops") <= 0 || get("of_peak") <= 0) bad = 2 }
    /"phase": "(data|adamw|reduction and gather)/ { if (get("ms") <= 0) bad = 3 }
    /"phase": "attention forward"/ { if (get("calls") != 6) bad = 4 }
    /outside/ { outside = get("outside_matmul_and_attention") }
    END { d = share - 1; e = inside + outside - 1; exit !(!bad && d * d < 1e-6 && e * e < 1e-6 && ms > 0) }' "$work/out"
verdict "bench step: phases are the whole step, each once" $? "$(tr '\n' '|' <"$work/out")"
mkdir "$work/tmp"
TMPDIR=$work/tmp alone bench step "${small[@]}" --repeat 1
said "bench step: a table" '^matmul weight gradient .*%'
said "bench step: what is outside" '^outside matmul and attention: [0-9.]* % of the step$'
check "bench step leaves nothing behind" test -z "$(find "$work/tmp" -name 'tutti-*')"

# --- exact ---
alone bench exact "${small[@]}" --repeat 2 --json
check "bench exact" test "$code" = 0
json "bench exact is JSON" "$work/out"
holds "bench exact: numbers" 'v["rounds"] == 2 && v["normal_ms"] > 0 && v["exact_ms"] > 0 &&
    v["exact_over_normal"] > 0 && v["exact_planned_mb"] > v["normal_planned_mb"]'
alone bench exact "${small[@]}" --repeat 1
said "bench exact: a sentence" 'exact takes [0-9.]* times as long'

# --- recompute ---
alone bench recompute "${small[@]}" model.layers=4 --repeat 2 --json
check "bench recompute" test "$code" = 0
json "bench recompute is JSON" "$work/out"
equal "bench recompute: a line a choice" "none selective sqrt block" \
    "$(sed -n 's/^{"recompute": "\([a-z]*\)".*/\1/p' "$work/out" | tr '\n' ' ' | sed 's/ $//')"
awk '
    function get(key) { match($0, "\"" key "\": [^,}]*"); return substr($0, RSTART + length(key) + 4) + 0 }
    { if (get("ms") <= 0 || get("over_none") <= 0 || get("kept_mb") <= 0) bad = 1 }
    NR == 1 { if (get("over_none") != 1 || get("flops_over_none") != 1) bad = 1; none = get("kept_mb") }
    NR == 4 { if (get("flops_over_none") <= 1.05 || get("kept_mb") >= none / 2) bad = 1 }
    END { exit bad }' "$work/out"
verdict "bench recompute: numbers" $? "$(tr '\n' '|' <"$work/out")"
alone bench recompute "${small[@]}" --repeat 1
said "bench recompute: a table" '^block .* [0-9.]* to [0-9.]* '

# --- allreduce ---
run 3 bench allreduce --repeat 2 --from 8 --to 1MB dist.bucket_mb=1 --json
check "bench allreduce" test "$code" = 0
json "bench allreduce is JSON" "$work/out"
equal "bench allreduce: eight collectives of nine sizes, none wrong" 72 "$(grep -c '"errors": 0}$' "$work/out")"
equal "bench allreduce: sizes" "8 32 128 512 2048 8192 32768 131072 524288" \
    "$(sed -n 's/.*"MPI_Allreduce", "bytes": \([0-9]*\),.*/\1/p' "$work/out" | tr '\n' ' ' | sed 's/ $//')"
# Bus bandwidth of 3 ranks: 4/3 of the algorithm's for sums, 2/3 for what goes one way.
awk '
    function get(key) { match($0, "\"" key "\": [^,}]*"); return substr($0, RSTART + length(key) + 4) + 0 }
    get("bytes") > 10000 {
        factor = /"MPI_I?[Aa]llreduce|memory"/ ? 4 / 3 : 2 / 3
        bus = get("busbw_gb_s"); off = bus - factor * get("algbw_gb_s")
        rate = get("bytes") / get("ms") / 1e6; d = rate - get("algbw_gb_s")
        if (bus <= 0 || off * off > 1e-6 + 1e-4 * bus * bus || d * d > 1e-6 + 1e-3 * rate * rate) bad = 1
        if (get("memcpy_gb_s") <= 0 || get("elements") * 4 != get("bytes")) bad = 1
    }
    END { exit bad }' "$work/out"
verdict "bench allreduce: numbers" $? "$(tail -n 5 "$work/out" | tr '\n' '|')"
run 2 bench allreduce --repeat 1 --from 4KiB --to 4KiB
said "bench allreduce: a table" '^MPI_Reduce_scatter  *4096  *1024  .* 0$'
for range in "--from 6" "--to 6" "--from 0" "--to lots" "--from 2TiB"; do
    # shellcheck disable=SC2086 # two words
    run 2 bench allreduce $range
    refused "bench allreduce $range" 2 "${range% *}: '${range#* }' is not a size of FP32 numbers"
done
run 2 bench allreduce --from 8KiB --to 4KiB
refused "a range from end to beginning" 2 "--from: 8192 bytes are more than --to: 4096"

# --- mistakes ---
# wrong NAME WORDS ARGUMENT...
wrong() {
    local name=$1 words=$2
    shift 2
    alone bench "$@"
    refused "$name" 2 "$words"
}
wrong "bench of nothing" "measures peak" --json
wrong "unknown bench" "nothing" nothing
wrong "recompute, but one" "measures all of them" recompute memory.recompute=block
wrong "unknown flag" "--fast" gemm --fast
wrong "no repeats" "--repeat" gemm --repeat 0
wrong "repeats of words" "'often'" gemm --repeat often
wrong "a shape of two" "'3x4'" gemm --shape 3x4
wrong "a shape of four" "'3x4x5x6'" gemm --shape 3x4x5x6
wrong "a shape of nothing" "'0x4x5'" gemm --shape 0x4x5
wrong "a shape of words" "'axbxc'" gemm --shape axbxc
wrong "sizes of peak" "--to belongs to tutti bench allreduce, not peak" peak --to 1MiB
wrong "a shape of peak" "belongs to tutti bench gemm" peak --shape 1x1x1
wrong "unknown key" "model.layer" step model.layer=2
wrong "heads that do not divide" "model.heads" attention model.heads=5
for what in peak gemm attention allreduce; do
    wrong "operations of $what that move up" "[head] has no meaning in tutti bench $what" $what "precision.fp32_ops=[head]"
done
wrong "an operation of a step that cannot move up" "embed cannot be moved" step "${small[@]}" "precision.fp32_ops=[embed]"
wrong "one rank has no sums" "at least 2 ranks" allreduce
TUTTI_ISA=guard wrong "clocks around guard" "watches every kernel" step "${small[@]}"
TUTTI_ISA=none wrong "an unknown ISA" "TUTTI_ISA=none" gemm --shape 1x1x1

# --- the page of make bench ---
code=0
TUTTI_BIN=$release timeout 240 scripts/bench.sh "$work/page" --repeat 1 --step-repeat 1 --to 1MiB "${small[@]}" \
    >"$work/out" 2>"$work/err" || code=$?
verdict "bench.sh" "$code"
for words in '| FMA | fp32 ' '| copy | ' '| model | 1 | [0-9.]* %' '| head | tn | 32 | 257 | 32 | 1 ' '| ragged | nn ' \
    '| backward | grouped ' '| fp16 | [0-9.]* | ' '| matmul weight gradient | ' '| rest | ' '| true | [0-9.]* | ' '| false | [0-9.]* | ' '| MPI_Allgatherv | 1048576 | '; do
    check "bench.md has $words" grep -q -- "$words" "$work/page/bench.md"
done
code=0
TUTTI_BIN=$release scripts/bench.sh "$work/one" --repeat 1 --only peak >"$work/out" 2>"$work/err" || code=$?
verdict "bench.sh --only in a folder without others" "$code"
equal "its page has what there is" "## The machine" "$(grep '^## ' "$work/one/bench.md")"
wrong_script=0
scripts/bench.sh --fast >"$work/out" 2>"$work/err" || wrong_script=$?
equal "bench.sh refuses unknown arguments" 2 $wrong_script
