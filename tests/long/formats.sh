#!/usr/bin/env bash
# What README says of number formats holds: scripts/compare_formats.sh on the release build, the whole
# table within its bounds; and that script fails when one of them is off. Some minutes.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/../cli/lib.sh"
unset OMP_NUM_THREADS # all processors: no number depends on threads

code=0
TUTTI_BIN=$release scripts/compare_formats.sh >"$work/out" 2>"$work/err" </dev/null || code=$?
sed 's/^/note /' "$work/out"
verdict "every format within its bound of FP32" "$code"
equal "rows" 10 "$(grep -cE ' [+-][0-9.]+ % ' "$work/out")"
equal "rows with a bound" 7 "$(grep -cE ' [0-9.]+ %$' "$work/out")"

# Gradients clipped before they are unscaled: the classic mistake of FP16 with a loss scale.
if "$tutti" version | grep -q '(\(debug\|asan\|tsan\|cov\) build'; then
    code=0
    TUTTI_BIN=$tutti TUTTI_FAULT=clip_scaled scripts/compare_formats.sh model.layers=1 model.channels=64 \
        model.context=64 run.steps=60 run.eval_sequences=64 >"$work/out" 2>"$work/err" </dev/null || code=$?
    equal "a format that is off: exit code" 1 "$code"
    check "a format that is off: in the table" grep -q '^fp16.* FAIL$' "$work/out"
    check "a format that is off: named" grep -q '^compare_formats.sh: fp16, .* from fp32, bound: 0.5 %' "$work/err"
else
    echo "skip a format that is off: this build has no faults"
fi
