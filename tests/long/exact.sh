#!/usr/bin/env bash
# Exact mode, the whole matrix: scripts/verify_equivalence.sh --exact over FP32 and BF16, 30 steps with
# dropout, documents of different lengths and clipping, and normal mode beside it; a smaller matrix of
# every other format, master and recipe; then splits drawn at random, with stops anywhere, at other
# lengths. The release build, because it is what people run.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/../cli/lib.sh"
seed=${TUTTI_TEST_SEED:-$(date +%Y%m%d)}
echo "note random splits: TUTTI_TEST_SEED=$seed draws them again"

# shellcheck source=scripts/lib/kinds.sh
source scripts/lib/kinds.sh

# verify NAME SPLITS ARGUMENT...: a check a row of the table, and what the table as a whole must show.
verify() {
    local name=$1 splits=$2
    shift 2
    code=0
    TUTTI_BIN=$release scripts/verify_equivalence.sh configs/equivalence.yaml --exact optim.clip=0.5 \
        "$@" >"$work/out" 2>"$work/err" </dev/null || code=$?
    echo "note $name: $(tail -n 1 "$work/out")"
    sed -n "s/^normal mode/note $name: &/p" "$work/out"
    # A leg of a resumed run is a row; the split ends where the verdict stands.
    awk -v name="$name" '
        !/^ *[0-9]/ { next }
        { leg = $1 " ranks of " $2 ", threads " $4 ", ZeRO " $5 ", buckets " $6 ", packed " $7 ", recompute " $8
            leg = leg ", sharing " $9 ", gradients " $10 ", steps " $11 }
        { split_text = split_text (split_text == "" ? "" : "; ") leg }
        $13 == "same" { print "ok " name ": " split_text }
        $13 == "FAIL:" { sub(/.*FAIL: /, ""); print "not ok " name ": " split_text ": " $0 }
        $13 != "stopped" { split_text = "" }
    ' "$work/out"
    verdict "$name" "$code" "$(tail -n 1 "$work/out") $(tail -n 3 "$work/err" | tr '\n' '|')"
    equal "$name: splits" "$splits" "$(grep -Ec '[0-9a-f]{16}  (same|FAIL)' "$work/out")"
    check "$name: clipping was active" grep -q '; clipped in [1-9]' "$work/out"
    # shellcheck disable=SC2046 # two numbers
    check "$name: the number of targets varies" test \
        $(sed -n 's/.* tokens, \([0-9]*\) to \([0-9]*\) of them.*/\1 -lt \2/p' "$work/out" | head -n 1)
}

# 27 pairs of ranks and micro-batch, each with 4 ZeRO stages; 12 that stop twice. 100 tokens are a
# panel of 64 rows and a part of one.
for compute in fp32 bf16; do
    verify "$compute, whole matrix" 120 --compute $compute model.context=100 model.channels=96 model.heads=3 \
        model.tie_embeddings="$([[ $compute == fp32 ]] && echo true || echo false)"
    check "$compute, whole matrix: normal mode differs, so there was something to see" \
        grep -q '^normal mode: [1-9]' "$work/out"
done
# 12 pairs, each with 4 ZeRO stages; 6 that stop twice. The loss scale grows and is cut back, what
# recipe delayed remembers goes by within a leg.
for kind in $all_kinds; do
    [[ $kind != fp32 && $kind != bf16 ]] || continue
    verify "$kind" 54 --compute "$kind" --ranks "1 2 4" --steps 12 --no-normal batch.sequences=12 \
        model.context=100 model.channels=96 model.heads=3 scaler.start=134217728 scaler.cap=1e12 \
        scaler.interval=2 fp8.history=3
done
for context in 37 64 129; do
    verify "random, $context tokens" 20 --sample 10 --seed "$seed" --no-normal model.context=$context
done
for kind in fp16-dynamic fp8-delayed fp8-mxfp8; do
    verify "random, $kind" 8 --sample 8 --seed "$seed" --no-normal --compute $kind scaler.start=134217728 \
        scaler.cap=1e12 scaler.interval=2 fp8.history=3
done
