#!/usr/bin/env bash
# The script that proves the promise passes on a program that keeps it, and fails on one that makes the
# classic mistake: each micro-batch's gradient divided by its own number of targets.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
prepare

# verify KEY=VALUE...: into $work/out, $work/err, $code.
verify() {
    code=0
    TUTTI_BIN=$tutti timeout 200 scripts/verify_equivalence.sh "$work/tiny.yaml" --steps 3 \
        "data.train=$work/documents.h5" data.mode=documents "$@" >"$work/out" 2>"$work/err" </dev/null || code=$?
}

verify --ranks "1 3" --compute "fp32 bf16" --micro 4
verdict "passes" "$code" "exit code $code: $(tail -n 20 "$work/out" "$work/err" | tr '\n' '|')"
equal "every line passes" 0 "$(grep -c FAIL "$work/out")"
check "and there are several" test "$(grep -c ' pass$' "$work/out")" -ge 8

# Other formats, with choices that go with them.
verify --ranks 2 --compute "tf32 fp16-dynamic fp8-delayed" --micro 1
verdict "other formats pass" "$code" "exit code $code: $(tail -n 20 "$work/out" "$work/err" | tr '\n' '|')"
for kind in tf32 fp16-dynamic fp8-delayed; do
    check "$kind: its table" grep -q "^$kind: 3 steps" "$work/out"
done
check "other formats: differences, so something was compared" grep -Eq '[1-9][.0-9]*e-[0-9]+ .* pass$' "$work/out"
verify --compute "bf16 bf17"
equal "refused: a kind that is not there" 2 "$code"
verify --compute fp16-dynamic precision.loss_scale=1
equal "refused: a key that the kind chooses" 2 "$code"

if "$tutti" version | grep -q '(\(debug\|asan\|tsan\|cov\) build'; then
    export TUTTI_FAULT=bad_norm
    verify --ranks "1 2" --compute fp32 --micro 4
    unset TUTTI_FAULT
    equal "fails with the classic mistake: exit code" 1 "$code"
    check "fails with the classic mistake: and says so" grep -q 'NOT equivalent' "$work/err"
    check "fails with the classic mistake: in the table" grep -q 'FAIL$' "$work/out"
else
    echo "skip classic mistake: this build has no faults"
fi
