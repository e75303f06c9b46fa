#!/usr/bin/env bash
# More ranks than make test has: every way to hold, share and move weights and gradients learns the same
# bits on 5, 6, 7 and 8 ranks, evenly and with ranks that come late.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/../cli/lib.sh"
limit=300
for ranks in 5 6 7 8; do
    for test in mpi_engine mpi_uneven; do
        code=0
        scripts/run.sh -n "$ranks" -t "$limit" "$(dirname "$tutti")/tests/train/$test" \
            >"$work/out" 2>"$work/err" </dev/null || code=$?
        verdict "$test on $ranks ranks" "$code" "exit code $code: $(head -n 5 "$work/out" | tr '\n' '|')"
        check "$test on $ranks ranks: it has run" grep -Eq '^100%: Checks: [1-9]' "$work/out"
    done
done
