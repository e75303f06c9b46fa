#!/usr/bin/env bash
# Exact mode, a slice of scripts/verify_equivalence.sh --exact: the same bits for every split, a table
# that says so, and a flipped bit of one gradient element that does not pass. The whole matrix is in
# tests/long/exact.sh.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
prepare
seed=${TUTTI_TEST_SEED:-$(date +%Y%m%d)}
echo "note random splits: TUTTI_TEST_SEED=$seed draws them again"

# Sequences of one panel of 64 rows and a bit of the next, and documents that end in either.
for i in {1..60}; do
    head -c $((2000 + i * 80)) include/tutti/base/options.h | tail -c $((2 + i * 37 % 151)) >"$work/documents/$i"
done
rm "$work/documents.h5"
build documents "$work/documents"

# verify ARGUMENT...: into $work/out, $work/err, $code.
verify() {
    code=0
    TUTTI_BIN=$tutti timeout 200 scripts/verify_equivalence.sh "$work/tiny.yaml" --exact \
        "data.train=$work/documents.h5" data.mode=documents batch.sequences=24 model.context=70 \
        model.dropout=0.1 optim.clip=0.2 "$@" >"$work/out" 2>"$work/err" </dev/null || code=$?
}

said_all() { tail -n 20 "$work/out" "$work/err" | tr '\n' '|'; }
last_line() { tail -n 1 "$work/out"; }

for compute in fp32 bf16; do
    tied=$([[ $compute == fp32 ]] && echo true || echo false)
    verify --compute $compute --steps 6 --no-normal model.tie_embeddings="$tied" --split 1:6:2 --split 2:3:1:0:25:true:block --split 3:8:2:3:0.03:false:sqrt:2 \
        --split 2:12:1:2:0.03:true:selective:1:pieces@2,3:2:2:0@4,1:4 --sample 2 --seed "$seed"
    verdict "$compute: every split has the same bits" "$code" "exit code $code, seed $seed: $(said_all)"
    equal "$compute: each is in the table" 6 "$(grep -c ' same$' "$work/out")"
    equal "$compute: one verdict" "PASS: 6 splits, every bit as in the reference" "$(last_line)"
    check "$compute: clipping was active" grep -q 'clipped in [1-9]' "$work/out"
    # shellcheck disable=SC2046 # two numbers
    check "$compute: the number of targets varies" test \
        $(sed -n 's/.* tokens, \([0-9]*\) to \([0-9]*\) of them.*/\1 -lt \2/p' "$work/out")
done

# Where scales follow what all ranks have seen: one that grows and is cut back, those that remember. The
# other kinds are in tests/long/exact.sh.
verify --compute "fp16-dynamic fp8-delayed" --steps 6 --no-normal --keep "$work/scales" scaler.interval=1 \
    scaler.start=134217728 scaler.cap=1e12 fp8.history=2 --split 2:3:1:0 --split 3:8:2:1:0.03@3,1:4
verdict "scales that move: every split has the same bits" "$code" "exit code $code: $(said_all)"
equal "scales that move: each is in the table" 4 "$(grep -c ' same$' "$work/out")"
moves=$(metric scales/fp16-dynamic-exact-reference loss_scale | awk '
    NR > 1 { if ($2 > before) up++; if ($2 < before) down++ }
    { before = $2 }
    END { print (up > 0 && down > 0) }')
equal "scales that move: up and down" 1 "$moves"

# Beside normal mode, where the same splits are apart.
verify --compute fp32 --steps 4 --ranks "1 3" --micro 8 --split 3:4 --split 1:2
verdict "beside normal mode" "$code" "exit code $code: $(said_all)"
check "which differs" grep -q '^normal mode: 2 of 2 splits differ' "$work/out"
check "from a step and by a bound" grep -Eq ' same +\| +@[1-4] +[0-9.e+-]+ +[0-9.e+-]+ +[0-9.e+-]+$' "$work/out"

if "$tutti" version | grep -q '(\(debug\|asan\|tsan\|cov\) build'; then
    # A rank that is not there is refused as the place of a fault, and one rank is the reference.
    # shellcheck disable=SC2016 # the inner shell's dollars
    printf '#!/bin/sh\n[ "${OMPI_COMM_WORLD_SIZE:-1}" = 1 ] || export %s\nexec "%s" "$@"\n' \
        TUTTI_FAULT=flip_grad:rank=1,step=2 "$tutti" >"$work/flips"
    chmod +x "$work/flips"
    # Without clipping a gradient element reaches its own weight alone.
    tutti=$work/flips verify --compute fp32 --steps 3 --no-normal optim.clip=0 --split 1:6:2 --split 3:8 --split 2:3:1:0
    equal "a flipped bit: exit code" 1 "$code"
    equal "a flipped bit: one rank has none" 1 "$(grep -c '^ *1 .* same$' "$work/out")"
    equal "a flipped bit: step and tensor in the table" 2 "$(grep -c 'FAIL: step 2, params/wte' "$work/out")"
    check "a flipped bit: step, tensor and split in the last line" grep -q \
        '^FAIL: 2 of 3 splits differ, first in fp32: step 2, params/wte, --split 3:8:1:1:25:true:none:0:auto@3$' <(last_line)
    tutti=$work/flips verify --compute bf16 --steps 3 --no-normal --split 2:4
    equal "a flipped bit, BF16 and clipping: exit code" 1 "$code"
    check "a flipped bit, BF16 and clipping: the step" grep -q '^FAIL: .* step 2, params/' <(last_line)
else
    echo "skip flipped bit: this build has no faults"
fi

# --- requests that are wrong ---
for wrong in "--split 2:5" "--split 2:3@9" "--split 2:3@2" "--split 2" "--split 1:1:1:4" "--split 2:3:1:1:1:true:none:0:pieces" "--split 2:3:1:1:1:true:none:x" "--sample 0" "--seed x" \
    "--ranks 5" "--seed 5" "--split 1:6:2000" "--split 1:6:1:1:0" "--split 1:6:1:1:2000" "--split 1:6:1:1:1:true:all" "--split 2:3 run.exact=false" "--split 2:3 optim.schedule=cosine"; do
    # shellcheck disable=SC2086 # words
    verify --steps 4 $wrong
    equal "refused: $wrong" 2 "$code"
    equal "refused in one sentence: $wrong" 1 "$(grep -c '^verify_equivalence.sh: ' "$work/err")"
done
code=0
TUTTI_BIN=$tutti scripts/verify_equivalence.sh "$work/tiny.yaml" --sample 3 >"$work/out" 2>"$work/err" || code=$?
equal "refused: --sample without --exact" 2 "$code"
