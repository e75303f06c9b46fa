#!/usr/bin/env bash
# The labs: each finds its claims true, in less than a minute, and false where every way is the same.
# Labs of faults need a build that has them; the others take the release build, because it is what
# people run.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/../cli/lib.sh"

# lab SCRIPT ARGUMENT...: its output into $work/out, $work/err.
lab() {
    local program=$release
    ! grep -q 'fault=' "$1" || program=$tutti
    code=0
    TUTTI_BIN=$program timeout 150 "$1" --dir "$work/lab" "${@:2}" >"$work/out" 2>"$work/err" </dev/null || code=$?
}

for script in scripts/labs/*.sh; do
    name=$(basename "$script" .sh)
    if grep -q 'fault=' "$script" && ! "$tutti" version | grep -q '(\(debug\|asan\|tsan\|cov\) build'; then
        echo "skip $name: this build has no faults"
        continue
    fi
    SECONDS=0
    lab "$script"
    verdict "$name" "$code" "exit code $code: $(grep '^FALSE' "$work/out" | tr '\n' '|') $(tail -n 1 "$work/err")"
    echo "note $name: $SECONDS s; $(tail -n 1 "$work/out")"
    check "$name: claims something" grep -q '^holds: ' "$work/out"
    check "$name: leaves a plot" test -s "$work/lab/$name.png"
    lab "$script" --same --steps 40
    equal "$name: fails when nothing differs" 1 "$code"
    check "$name: and says which claim is false" grep -q '^FALSE: ' "$work/out"
    check "$name: in a sentence" grep -q '^[a-z0-9_]*\.sh: [1-9] of [1-9] claims do not hold' "$work/err"
done
