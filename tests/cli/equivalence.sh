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
