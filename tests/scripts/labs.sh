#!/usr/bin/env bash
# quick: yes
# The labs, without running them: each tells its lesson, refuses what it does not know, needs the
# program, and is in the table of scripts/labs/README.md. tests/long/labs.sh runs them.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
work=$(mktemp -d "${TMPDIR:-/tmp}/tutti-labs.XXXXXX")
trap 'rm -rf "$work"' EXIT

verdict() { # name, condition's exit code
    if (($2 == 0)); then echo "ok $1"; else echo "not ok $1: $(tail -n 1 "$work/said")"; fi
}

# refused NAME WORDS ARGUMENT...: exit code 2, one sentence, nothing made.
refused() {
    local code=0
    "$lab" --dir "$work/lab" "${@:3}" >"$work/said" 2>&1 || code=$?
    [[ $code == 2 && $(wc -l <"$work/said") == 1 && ! -e $work/lab ]] && grep -qF -- "$2" "$work/said"
    verdict "$1" $?
}

if ! command -v gnuplot >/dev/null; then
    echo "skip labs: gnuplot is not installed"
    exit 0
fi
for lab in scripts/labs/*.sh; do
    name=$(basename "$lab" .sh)
    # The head: name and what, usage, then the lesson.
    "$lab" --help >"$work/said" 2>&1 &&
        [[ $(head -n 1 "$work/said") == "$name.sh: "* ]] && grep -qF "$lab [--steps N]" "$work/said" &&
        ! grep -q shellcheck "$work/said" && (($(wc -l <"$work/said") >= 10))
    verdict "$name: --help is its head comment" $?
    refused "$name: unknown argument" "unknown argument '--wrong'" --wrong
    refused "$name: steps" "--steps '3'" --steps 3
    TUTTI_BIN=$work/nowhere refused "$name: no program" "$work/nowhere is not there"
    mkdir -p "$work/mine" && echo keep >"$work/mine/file"
    TUTTI_BIN=/bin/true "$lab" --dir "$work/mine" >"$work/said" 2>&1
    [[ $? == 2 && -s $work/mine/file ]] && grep -q "not a lab's folder" "$work/said"
    verdict "$name: clears no folder but its own" $?
    grep -q "^| \`$name.sh\` |" scripts/labs/README.md 2>"$work/said"
    verdict "$name: in the table of labs" $?
done
