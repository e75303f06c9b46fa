#!/usr/bin/env bash
# scripts/measure_ranks.sh: ranks that share memory save what their plan says; one that does not would be seen.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
work=$(mktemp -d "${TMPDIR:-/tmp}/tutti-ranks-test.XXXXXX")
trap 'rm -rf "$work"' EXIT
TUTTI_BIN=${TUTTI_RELEASE_BIN:-${TUTTI_BIN:-$PWD/build/release/tutti}}
export TUTTI_BIN

verdict() { # name, condition's exit code
    if (($2 == 0)); then echo "ok $1"; else echo "not ok $1: $(tail -n 4 "$work/said" | tr '\n' '|')"; fi
}

if "$TUTTI_BIN" version | grep -q '(\(asan\|tsan\) build'; then
    echo "skip measure_ranks: memory of a sanitizer's build says nothing"
    exit 0
fi
if [[ ! -r /proc/self/smaps_rollup ]]; then
    echo "skip measure_ranks: this system has no /proc/PID/smaps_rollup"
    exit 0
fi
code=0
scripts/measure_ranks.sh --quick --ranks 4 --zero 1 >"$work/said" 2>&1 || code=$?
verdict "memory of 4 ranks is as planned" $code
# What three copies of 6 million weights and their packed forms take is 107 MiB; a rank that kept its own
# copy would save less by a third.
awk '$3 == "true" { d = $8 - $9; exit !($8 > 100 && (d < 0 ? -d : d) < $8 / 6) }' "$work/said"
verdict "sharing saves three copies" $?
# A program that shares nothing, whatever it is asked.
cat >"$work/tutti" <<SH
#!/usr/bin/env bash
[[ \$1 != train ]] || set -- "\$@" dist.node_shared=false
exec "$TUTTI_BIN" "\$@"
SH
chmod +x "$work/tutti"
code=0
TUTTI_BIN=$work/tutti scripts/measure_ranks.sh --quick --ranks 4 --zero 1 >"$work/said" 2>&1 || code=$?
[[ $code == 1 ]] && grep -q 'true .* FAIL$' "$work/said"
verdict "a program that does not share is seen" $?
for wrong in "--ranks 1" "--ranks two" "--zero 4" "--zero" "--what"; do
    code=0
    # shellcheck disable=SC2086 # words
    scripts/measure_ranks.sh $wrong >"$work/said" 2>&1 || code=$?
    [[ $code == 2 && $(grep -c '^measure_ranks.sh: ' "$work/said") == 1 ]]
    verdict "refused: $wrong" $?
done
