#!/usr/bin/env bash
# The ledger of `tutti plan`: its columns, its JSON, what a technique changes, what fits a memory; and
# what is no size of one.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
prepare

plan() { alone plan "$work/tiny.yaml" "$@"; }

# path OBJECT KEY: the number of a key within a named object of the JSON.
path() { grep -o "\"$1\": {[^}]*}" "$work/out" | head -n 1 | sed -n "s/.*\"$2\": \([0-9.e-]*\)[,}].*/\1/p"; }

# --- a rank and a node ---
plan --ranks 4
said "all ranks are on one node" '   4 ranks on a node, 4 in all; 4 share memory$'
said "and hold the weights once" ' bytes (fp32), once for 4 ranks$'
plan --ranks 4 --ranks-per-node 3
said "ranks of a node" '   3 ranks on a node, 4 in all; 3 share memory$'
plan --ranks 2 --ranks-per-node=8
said "no more than there are" '   2 ranks on a node, 2 in all; 2 share memory$'
plan --ranks 6 --ranks-per-node 4 dist.node_ranks=2
said "some of them share" '   4 ranks on a node, 6 in all; 2 share memory$'
plan --ranks 4 dist.node_shared=false
said "or none" '   4 ranks on a node, 4 in all$'
plan --ranks 4 --ranks-per-node 3 dist.node_shared=false --json
json "plan --json is JSON" "$work/out"
equal "one object, one line" 1 "$(wc -l <"$work/out")"
mapped=$(field mapped_bytes)
equal "a node is its ranks, and libraries once" "$((3 * ($(path rank_bytes total) - mapped) + mapped))" "$(path node_bytes total)"
apart=$(path node_bytes total) copy=$(path component_bytes weights)
plan --ranks 4 --ranks-per-node 3 --json
equal "sharing saves all copies but one" $((apart - 2 * copy)) "$(path node_bytes total)"
equal "which is held once" "$copy" "$(path shared_bytes weights)"

# --- gradients, whole or in pieces ---
sent() { grep -o '"wire_bytes": [0-9]*' "$work/out" | head -n 1 | sed 's/.* //'; } # by the plan itself
plan --ranks 2 memory.zero=2 dist.bucket_mb=1
said "reduced once a step, whatever accumulate is" '^Wire per step and rank (whatever accumulate is)$'
said "all sums are kept, when there are several micro-batches" '^  gradients whole .* in memory (chosen)$'
said "and what pieces would cost is said" '^  gradients pieces .* in memory$'
plan --ranks 2 memory.zero=2 --json
json "the choice of gradients, as JSON" "$work/out"
read -r whole pieces <<<"$(grep -o '"gradients": \[[^]]*' "$work/out" | grep -o '"wire_bytes": [0-9]*' | sed 's/.* //' | tr '\n' ' ')"
equal "the whole is what the plan sends" "$(sent)" "$whole"
plan --ranks 2 memory.zero=2 memory.gradients=pieces --json
equal "pieces are what it would send" "$(sent)" "$pieces"
check "and that is more" test "$pieces" -gt "$whole"
plan --ranks 2 memory.zero=3
said "weights of ZeRO 3 come in every micro-batch" '^Wire per step and rank, with accumulate 6$'
said "its own pieces" '^    pieces .* of 11264 x 4 bytes (fp32)$'
plan --ranks 2 memory.zero=1 memory.gradients=pieces
refused "pieces without ZeRO 2" 2 "memory.gradients: pieces goes with memory.zero 2 or 3"

train 1 run run.steps=1
equal "the plan is that of the run" "$(sed -n '1s/.*"activations_bytes": \([0-9]*\).*/\1/p' "$work/run/metrics.jsonl")" \
    "$(plan --json && path component_bytes activations)"

# --- techniques: what a row says of one comes true ---
# change NAME: bytes that a technique changes in all.
change() { grep -o "\"name\": \"$1\",[^}]*}" "$work/out" | sed -n 's/.*"total": \(-*[0-9]*\).*/\1/p'; }
plan --ranks 4 precision.compute=bf16 memory.zero=0 --json
before=$(path rank_bytes total) said=$(change "zero 1")
plan --ranks 4 precision.compute=bf16 memory.zero=1 --json
equal "zero 1 saves what was said" "$((before + said))" "$(path rank_bytes total)"
equal "and is said to have saved it" "$said" "$(change "zero 1")"
plan precision.compute=bf16 precision.master=split
said "a technique that is on" '^  split master  *on  *\.  *\.  *-'
plan
said "one that cannot be is refused" '^  split master  *off  *-  *-  *-  *-  *-  *- \[[0-9]\]$'
said "with the reason" '^  \[[0-9]\] precision.master: split needs'

# --- what fits ---
plan --ranks 2 --memory 64MiB --json
json "plan --memory --json is JSON" "$work/out"
mapfile -t fit < <(grep -o '"largest_micro": [0-9]*' "$work/out" | sed 's/.* //')
choices=(none selective sqrt block)
equal "each way to recompute has its largest" ${#choices[@]} ${#fit[@]}
for i in "${!choices[@]}"; do
    choice=${choices[i]} largest=${fit[i]}
    plan --ranks 2 "memory.recompute=$choice" "batch.micro=$largest" batch.sequences=0 --json
    check "$choice: the largest micro-batch fits" test "$(path rank_bytes total)" -le $((64 << 20))
    plan --ranks 2 "memory.recompute=$choice" "batch.micro=$((largest + 1))" batch.sequences=0 --json
    check "$choice: one more sequence does not" test "$(path rank_bytes total)" -gt $((64 << 20))
done
plan --memory 64MiB
said "the ways to recompute" '^  none  *[0-9.]* [KM]iB  *[0-9.]* [KM]iB  *yes  *[0-9]*   [0-9.e-]* s$'
said "and their price" '^  block  *[0-9.]* [KM]iB  *[0-9.]* [KM]iB  *yes  *[0-9]*   +[0-9.]* %$'
equal "nothing on stderr when nobody watches" "" "$(<"$work/err")"
plan --memory 10kB
said "nothing fits" '^  none .* no  *none fits '

# --- what to expect of a network ---
plan --ranks 6 --ranks-per-node 2 --latency_us 50 --gbps 0.5
said "a forecast" '^Forecast: 6 ranks, 2 on a node, 0.5 Gbit/s and 50 us between nodes$'
said "a line without overlap" '^  *no  *[0-9.]*  *[0-9.]*  *[0-9.]*  *[0-9.]*  *[0-9.]*  *[0-9]*  *[0-9.]* %$'
equal "nothing on stderr here either" "" "$(<"$work/err")"
plan --ranks 4 --latency_us 50 --gbps 0.5 batch.sequences=0 batch.accumulate=3 --json
json "plan with a network, as JSON" "$work/out"
equal "a node has one rank unless told" '"node_ranks": 1' "$(grep -o '"wire": {.*' "$work/out" | grep -o '"node_ranks": [0-9]*')"
equal "and shares nothing with itself" '"shared": false' "$(grep -o '"shared": [a-z]*' "$work/out")"
equal "its own accumulation, then others" "3 1 8 32" "$(grep -o '"wire": {.*' "$work/out" |
    grep -o '"accumulate": [0-9]*' | sed 's/.* //' | tr '\n' ' ' | sed 's/ $//')"
# The first of each name within "wire" is the plan's own, with overlap; the second without.
grep -o '"wire": {.*' "$work/out" | tr '{},' '\n' | awk -F'": ' '
    /^ *"/ { sub(/^ *"/, "", $1); n[$1]++; v[$1, n[$1]] = $2 }
    function same(a, b) { return (a - b) ^ 2 <= (1e-9 * b) ^ 2 }
    END {
        comm = v["reduce_ms", 1] + v["gather_ms", 1] + v["agree_ms", 1]
        exit !(same(v["comm_ms", 1], comm) && same(v["comm_exposed_ms", 2], comm) && v["comm_exposed_ms", 1] <= comm * 1.000001 &&
            same(v["step_ms", 1], v["compute_ms", 1] + v["comm_exposed_ms", 1]) &&
            same(v["step_ms", 2], v["compute_ms", 1] + comm) && v["efficiency", 1] >= v["efficiency", 2] * 0.999999 &&
            v["efficiency", 2] > 0 && v["latency_us", 1] == 50 && v["gbps", 1] == 0.5 && v["nodes", 1] == 4)
    }'
verdict "the numbers of a forecast agree" $? "$(grep -o '"wire": {.*' "$work/out" | head -c 600)"
plan --ranks 4 --ranks-per-node 2 --latency_us 50 --gbps 0.5 --json
equal "two on a node share memory" '"shared": true' "$(grep -o '"shared": [a-z]*' "$work/out")"
plan --ranks 4 --ranks-per-node 2 --latency_us 50 --gbps 0.5 dist.node_shared=false --json
equal "unless they are told not to" '"shared": false' "$(grep -o '"shared": [a-z]*' "$work/out")"
plan --latency_us 1 --gbps 100
said "one rank waits for nobody" '^  *1 *yes  *[0-9.]*  *0\.00  *0\.00  *0\.00 .* 100\.00 %$'
plan --latency_us 1 --gbps 100 --tokens_per_s 1234.5 --json
equal "one rank is as fast as it is said to be" "1234.5 1234.5" \
    "$(grep -o '"wire": {.*' "$work/out" | grep -o 'tokens_per_s": [0-9.]*' | head -n 2 | sed 's/.* //' |
        awk '{ printf "%s%.1f", (NR > 1 ? " " : ""), $1 }')"
plan --ranks 2 --latency_us 50
refused "a latency without a speed" 2 "--latency_us needs --gbps"
plan --ranks 2 --gbps 10
refused "a speed without a latency" 2 "--gbps needs --latency_us"
plan --ranks 2 --tokens_per_s 2
refused "--tokens_per_s without a network" 2 "--tokens_per_s goes with"
plan --ranks 2 --sum_gb_s 2
refused "--sum_gb_s without a network" 2 "--sum_gb_s goes with"
plan --ranks 2 --ranks-per-node 2 --latency_us 1 --gbps 1 --sum_gb_s 1e-3 --json
# Half of 4 bytes a parameter at a megabyte a second; a component may have red zones around it.
close_value "two ranks of a node add up half of the gradient each" 0.01 \
    "$(grep -o '"component_bytes": {[^}]*' "$work/out" | sed 's/.*"gradients": \([0-9]*\).*/\1/' | awk '{ print $1 / 2 / 1e3 }')" \
    "$(grep -o '"reduce_ms": [0-9.e+]*' "$work/out" | head -n 1 | sed 's/.* //')"
for flag in "--gbps 0" "--gbps -1" "--gbps fast" "--gbps nan" "--latency_us -1" "--latency_us inf" "--tokens_per_s 0" "--sum_gb_s 0"; do
    # shellcheck disable=SC2086 # two words
    plan --latency_us 5 --gbps 10 $flag
    refused "$flag" 2 "${flag% *}: '${flag#* }' is not a number from"
done

# --- bad input ---
for size in "" 0 0.9 -1 8gib lots "8 GiB" 1048577TiB; do
    plan --memory "$size"
    refused "--memory '$size'" 2 "--memory: '$size' is not a size; allowed is"
done
plan --memory
refused "--memory without a size" 2 "--memory needs a value"
plan --ranks-per-node 0
refused "no ranks on a node" 2 "--ranks-per-node: '0'"
plan --json=yes
refused "--json with a value" 2 "--json takes no value"

# What cannot be run here is planned all the same.
alone plan "$work/tiny.yaml" model.layers=12 model.channels=65536 model.heads=512 dist.bucket_mb=25 --memory 4TiB
check "a model of terabytes has its table" test "$code" = 0
said "but no times" 'times are not measured: one block of this model takes .* to run$'
alone plan "$work/tiny.yaml" batch.micro=1000000000 batch.accumulate=1000000000 batch.sequences=0
refused "a batch beyond counting" 2 "batch.micro 1000000000 and batch.sequences"
alone plan "$work/tiny.yaml" model.layers=510 model.channels=1048576 model.ffn=16777216 model.vocab=16777216 model.heads=512
refused "a model beyond counting" 2 "make 3.7e+16 parameters"
alone plan "$work/tiny.yaml" model.layers=12 model.channels=65536 model.heads=512 dist.bucket_mb=25 --latency_us 1 --gbps 1
refused "nor a forecast" 1 "its kernels cannot be measured: one block of this model takes"
