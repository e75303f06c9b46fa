#!/usr/bin/env bash
# The equivalence table passes on the program as it is, and fails when each micro-batch is divided by its
# own number of targets (the fault bad_norm), which is the mistake it is there to find.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
work=$(mktemp -d "${TMPDIR:-/tmp}/tutti-equal.XXXXXX")
trap 'rm -rf "$work"' EXIT

verify() {
    scripts/verify_equivalence.sh configs/equivalence.yaml --steps 3 --ranks 2 --compute fp32 \
        model.layers=1 model.channels=32 batch.sequences=4 optim.warmup=1 "$@" >"$work/said" 2>&1
}

verify
rc=$?
if ((rc == 0)) && [[ $(grep -c 'pass$' "$work/said") == 4 ]]; then
    echo "ok equivalent splits pass"
else
    echo "not ok equivalent splits pass: exit code $rc"
    cat "$work/said"
fi

if ! "$TUTTI_BIN" version | grep -q '(debug\|(asan\|(tsan\|(cov'; then
    echo "skip broken normalisation is found: this build has no faults"
    exit
fi
TUTTI_FAULT=bad_norm verify
rc=$?
if ((rc == 1)) && grep -q 'FAIL$' "$work/said" && grep -q 'NOT equivalent' "$work/said"; then
    echo "ok broken normalisation is found"
else
    echo "not ok broken normalisation is found: exit code $rc"
    cat "$work/said"
fi

verify batch.micro=banana
rc=$?
if ((rc == 2)) && grep -q 'batch.micro' "$work/said"; then
    echo "ok wrong input is refused"
else
    echo "not ok wrong input is refused: exit code $rc"
    cat "$work/said"
fi
