#!/usr/bin/env bash
# scripts/measure_memory.sh: a plan that holds passes; a plan that does not would be seen.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
work=$(mktemp -d "${TMPDIR:-/tmp}/tutti-memory-test.XXXXXX")
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1
TUTTI_BIN=${TUTTI_RELEASE_BIN:-${TUTTI_BIN:-$PWD/build/release/tutti}}
export TUTTI_BIN

verdict() { # name, condition's exit code
    if (($2 == 0)); then echo "ok $1"; else echo "not ok $1: $(tail -n 2 "$work/said" | tr '\n' '|')"; fi
}

if "$TUTTI_BIN" version | grep -q '(\(asan\|tsan\) build'; then
    echo "skip measure_memory: memory of a sanitizer's build says nothing"
    exit 0
fi
scripts/measure_memory.sh --quick >"$work/said" 2>&1
verdict "small models take what is planned" $?
[[ $(grep -c ' pass$' "$work/said") == 8 ]] && grep -q '^PASS: 8 runs' "$work/said"
verdict "a row a run" $?
# The program, but its last record says that 100 MiB more were in memory, and 2 % are less.
cat >"$work/tutti" <<SH
#!/usr/bin/env bash
"$TUTTI_BIN" "\$@" || exit
[[ \$1 == train ]] || exit 0
for word; do [[ \$word != run.dir=* ]] || dir=\${word#run.dir=}; done
sed -i 's/"peak_rss": [0-9]*/"peak_rss": 200000000/' "\$dir/metrics.jsonl"
SH
chmod +x "$work/tutti"
code=0
TUTTI_BIN=$work/tutti scripts/measure_memory.sh --quick --micro 1 >"$work/said" 2>&1 || code=$?
[[ $code == 1 && $(grep -c ' FAIL$' "$work/said") == 4 ]] && tail -n 1 "$work/said" | grep -q 'further from its plan'
verdict "a run that takes more fails" $?
for wrong in "--micro none" "--models large" "--fast" "--keep"; do
    code=0
    # shellcheck disable=SC2086 # words
    scripts/measure_memory.sh $wrong >"$work/said" 2>&1 || code=$?
    [[ $code == 2 && $(wc -l <"$work/said") == 1 ]]
    verdict "refused in one sentence: $wrong" $?
done
