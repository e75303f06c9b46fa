#!/usr/bin/env bash
# quick: yes
# scripts/scale.sh: a row for each network and number of ranks, a column for each accumulation, from one
# measurement; refusals.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
work=$(mktemp -d "${TMPDIR:-/tmp}/tutti-scale-test.XXXXXX")
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1
TUTTI_BIN=${TUTTI_BIN:-$PWD/build/release/tutti}
export TUTTI_BIN
small=(model.layers=2 model.heads=2 model.channels=32 model.context=32 model.vocab=257 batch.micro=1)

verdict() { # name, condition's exit code
    if (($2 == 0)); then echo "ok $1"; else echo "not ok $1: $(tail -n 4 "$work/said" | tr '\n' '|')"; fi
}

scripts/scale.sh --ranks "4 64" --networks "1:50 10:5" --ranks-per-node 2 --rate 100000 configs/tiny.yaml "${small[@]}" \
    >"$work/said" 2>&1
verdict "a table" $?
[[ $(sed -n 's/^| \([0-9]*\) | \([0-9]*\) | \([0-9]*\) Gbit.*/\1 \2 \3/p' "$work/said" | tr '\n' ';') == "4 2 1;64 32 1;4 2 10;64 32 10;" ]]
verdict "a row for each network and number of ranks" $?
[[ $(head -n 1 "$work/said") == *"| efficiency, K = 1 | efficiency, K = 8 | efficiency, K = 32 |" ]]
verdict "a column for each accumulation" $?
# The more accumulation the better, and overlap never harms.
awk -F'|' '/^\| [0-9]/ {
    for (i = 7; i <= 9; i++) { split($i, e, /[ %()]+/); if (e[2] + 0.1 < e[3] || e[2] < last[NR]) bad = 1; last[NR] = e[2] }
    rows++ } END { exit bad || rows != 4 }' "$work/said"
verdict "efficiencies in order" $?
scripts/scale.sh --ranks 4 --networks 1:50 --cores 8 configs/tiny.yaml "${small[@]}" >"$work/said" 2>&1 &&
    awk '/alone trains/ { match($0, /trains [0-9]+ tokens/); one = substr($0, RSTART + 7) + 0; match($0, /which train [0-9]+/); here = substr($0, RSTART + 12) + 0
        d = one / here - 8; exit !(d < 0.01 && d > -0.01) }' "$work/said"
verdict "eight cores are eight times one" $?
for wrong in "--cores none" "--networks fast" "--ranks many" "--fast" "--rate"; do
    code=0
    # shellcheck disable=SC2086 # words
    scripts/scale.sh --ranks 4 --rate 1 configs/tiny.yaml "${small[@]}" $wrong >"$work/said" 2>&1 || code=$?
    [[ $code == 2 && $(wc -l <"$work/said") == 1 ]]
    verdict "refused in one sentence: $wrong" $?
done
