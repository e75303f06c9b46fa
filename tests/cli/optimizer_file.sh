#!/usr/bin/env bash
# memory.optimizer_file as a user meets it: the same bits, a model that memory alone does not hold, and every
# way in which a disk can disappoint: one sentence on all ranks, nothing lost, nothing left behind.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
prepare

mkdir "$work/disk"
file=memory.optimizer_file=$work/disk/state
keys=(model.vocab=4000 run.exact=true run.digest_every=3) # more chunks than go into memory

left() { find "$work/disk" -type f | wc -l; }
digest() { sed -n 's/.*"digest": "\([^"]*\)".*/\1/p' "$work/$1/metrics.jsonl" | tail -n 1; }

# --- the same bits ---
trained "in memory" 1 memory "${keys[@]}"
for ranks in 1 2 3; do
    trained "in a file on $ranks ranks" "$ranks" "file$ranks" "${keys[@]}" "$file" memory.zero=$((ranks % 2))
    check "it says how" grep -q 'memory.optimizer_file: .* a rank in .*/disk/state.RANK, .* the page cache' "$work/err"
    equal "the same weights" "$(digest memory)" "$(digest "file$ranks")"
    same_state "the same state" "$(checkpoint memory 6)" "$(checkpoint "file$ranks" 6)"
done
equal "nothing is left" 0 "$(left)"
check "metrics.jsonl says what is on disk" grep -q '"optimizer_file_bytes": [1-9]' "$work/file1/metrics.jsonl"
check "and what is not" grep -q '"optimizer_file_bytes": 0,' "$work/memory/metrics.jsonl"
alone plan "$work/tiny.yaml" "${keys[@]}" "$file" --ranks 2
said "the plan says it" '^    on disk .*[KM]iB .* x 12 bytes (master 4, m 4, v 4), in .*/disk/state.RANK$'

trained "below a run.dir that is new" 2 fresh "${keys[@]}" "memory.optimizer_file=$work/fresh/state"

# --- disks that disappoint ---
alone plan "$work/tiny.yaml" "memory.optimizer_file=$work/disk/"
refused "a folder for a file" 2 "names no file"
train 2 nowhere "memory.optimizer_file=$work/none/state"
refused "a folder that is not there" 1 "memory.optimizer_file: cannot make the file $work/none/state."
echo mine >"$work/disk/state.1"
train 2 taken "$file"
refused "a file of somebody else's" 1 "File exists"
equal "which stays" mine "$(cat "$work/disk/state.1")"
rm "$work/disk/state.1"
if mkdir "$work/small" && mount -t tmpfs -o size=400k tutti "$work/small" 2>/dev/null; then
    train 2 full "${keys[@]}" "memory.optimizer_file=$work/small/state"
    umount "$work/small"
    refused "a full disk" 1 "No space left on device"
else
    echo "skip a full disk: no file system can be mounted here"
fi
equal "no step was made" "" "$(find "$work"/{nowhere,taken,full} -name '*.jsonl' 2>/dev/null)"
equal "nothing is left by them" 0 "$(left)"

if "$tutti" version | grep -q '(\(debug\|asan\|tsan\|cov\) build'; then
    trained "two good steps" 2 broken run.steps=2 "${keys[@]}" "$file"
    before=$(find "$work/broken" -name '*.h5' -exec sha256sum {} +)
    for ranks in 1 2 3; do
        TUTTI_FAULT=optimizer_file:rank=$((ranks - 1)),step=4 train "$ranks" broken run.save_every=1 "${keys[@]}" "$file"
        failed "a disk that fails in a step, $ranks ranks" 1 "step 4: memory.optimizer_file: "
        check "what is saved is said" grep -q 'stopped, the last checkpoint is untouched' "$work/err"
        rm "$(checkpoint broken 3)"
        equal "it is: $ranks ranks" "$before" "$(find "$work/broken" -name '*.h5' -exec sha256sum {} +)"
    done
    TUTTI_FAULT=crash_at=in_step:step=4 train 2 broken "${keys[@]}" "$file"
    check "a run that is killed" test "$code" != 0
    equal "leaves nothing" 0 "$(left)"
    trained "and the next goes on" 2 broken "${keys[@]}" "$file"
    same_state "to the same state" "$(checkpoint memory 6)" "$(checkpoint broken 6)"
else
    echo "skip faults: this build has none"
fi

# --- more than memory holds ---
# In BF16: no library joins in, which would want memory late.
large=(model.layers=1 model.channels=64 model.vocab=500000 batch.sequences=2 run.steps=2 run.digest_every=1
    precision.compute=bf16 optim.warmup=0)
# Trains with the file; $work/peak: peak of its address space in KiB.
address_space() {
    local pid peak=0 now
    "$release" train "$work/tiny.yaml" "run.dir=$work/large" "${large[@]}" "$file" >"$work/out" 2>"$work/err" &
    pid=$!
    while now=$(sed -n 's/^VmPeak:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$pid/status" 2>/dev/null) && [[ -n $now ]]; do
        peak=$now
        sleep 0.02
    done
    code=0 && wait $pid || code=$?
    echo "$peak" >"$work/peak"
}
# limited OPTION KIB KEY=VALUE...: the same within a limit of the shell's.
limited() {
    # shellcheck disable=SC2016 # the other shell's
    code=0 && bash -c 'ulimit "$1" "$2" && shift 2 && exec "$@"' limited "$1" "$2" timeout -k 1 "$limit" "$release" train \
        "$work/tiny.yaml" "${large[@]}" "${@:3}" >"$work/out" 2>"$work/err" || code=$?
}
limited -f 65536 "run.dir=$work/limited" "$file"
refused "a limit on file sizes" 1 "File too large"
limit=180 # a model of 32 million parameters
if "$release" version | grep -q '(\(asan\|tsan\) build'; then
    echo "skip more than memory holds: the sanitizers take all of the address space"
else
    address_space
    verdict "a large model" "$code"
    most=$(($(cat "$work/peak") + 64 * 1024)) # masters, m and v are 366 MiB
    limited -v $most "run.dir=$work/too-large"
    failed "it does not fit" 1 "of memory for optimizer: Cannot allocate memory"
    limited -v $most "run.dir=$work/fits" "$file"
    verdict "with the file it does" "$code"
    equal "the same weights as without a limit" "$(digest large)" "$(digest fits)"
    # What OpenBLAS is refused it asks for without end.
    code=0 && bash -c 'ulimit -v "$1" && shift && exec "$@"' limited $(($(cat "$work/peak") - 64 * 1024)) timeout -k 1 "$limit" \
        "$release" train "$work/tiny.yaml" "run.dir=$work/blas" precision.compute=fp32 run.threads=8 >"$work/out" 2>"$work/err" || code=$?
    failed "no room for OpenBLAS" 1 "OpenBLAS maps 128 MiB for each of 8 threads"
fi
equal "nothing is left at the end" 0 "$(left)"
