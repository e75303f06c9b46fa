#!/usr/bin/env bash
# quick: yes
# The test runner can fail: on a failed check, a crash, a hang, silence, a missing program, a rank.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
tree=$(mktemp -d "${TMPDIR:-/tmp}/tutti-runner.XXXXXX")
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree"/{scripts,tests/base,tests/cli,tests/long,build/tests/base}
cp scripts/test.sh "$tree/scripts/"
sed -i 's/^timeout_program=.*/timeout_program=2/' "$tree/scripts/test.sh"
printf '#!/bin/sh\nshift 4\nexec "$@"\n' >"$tree/scripts/run.sh"
chmod +x "$tree/scripts/run.sh"

# Replaces all tests of the tree by one, and wants this last line of the runner.
expect() { # name, last line, program's name, program's text, option
    rm -f "$tree"/tests/*/* "$tree"/build/tests/base/*
    local rc good=1
    [[ $2 == *", 0 failed" && $2 != "0 passed"* ]] && good=0
    case $3 in
    *.sh)
        printf '#!/bin/bash\n%s\n' "$4" >"$tree/tests/cli/$3"
        chmod +x "$tree/tests/cli/$3"
        ;;
    *)
        : >"$tree/tests/base/$3.c"
        if [[ -n $4 ]]; then
            printf '#!/bin/bash\n%s\n' "$4" >"$tree/build/tests/base/$3"
            chmod +x "$tree/build/tests/base/$3"
        fi
        ;;
    esac
    said=$("$tree/scripts/test.sh" "${@:5}" build 2>&1)
    rc=$?
    if [[ ${said##*$'\n'} == "$2" && $rc == "$good" ]]; then
        echo "ok $1"
    else
        echo "not ok $1: wanted '$2', got '${said##*$'\n'}' and exit code $rc"
    fi
}

summary='echo "100%: Checks: 3, Failures: 0, Errors: 0"'
expect "passing checks count" "3 passed, 0 failed" test_a "$summary"
expect "failing checks count" "1 passed, 2 failed" test_a 'echo "33%: Checks: 3, Failures: 1, Errors: 1"; exit 1'
expect "crash" "0 passed, 1 failed" test_a 'kill -SEGV $$'
expect "crash after the summary" "3 passed, 1 failed" test_a "$summary; exit 1"
expect "hang" "0 passed, 1 failed" test_a 'sleep 30'
expect "silence" "0 passed, 1 failed" test_a 'exit 0'
expect "program that was not built" "0 passed, 1 failed" test_a ''
expect "four rank counts" "12 passed, 0 failed" mpi_a "$summary"
expect "script" "2 passed, 1 failed" a.sh 'echo ok one; echo ok two; echo not ok three: why; exit 1'
expect "script that dies" "1 passed, 1 failed" a.sh 'echo ok one; exit 3'
expect "script's note" "1 passed, 0 failed" a.sh 'echo note of interest; echo ok one'
if grep -q '^ *of interest$' <<<"$said"; then echo "ok note is shown"; else echo "not ok note is shown: $said"; fi
# A failed check is shown however much is said after it.
shown() { # name, line
    if grep -qF "| $2" <<<"$said"; then echo "ok $1"; else echo "not ok $1: $said"; fi
}
expect "script that says a lot" "1 passed, 1 failed" a.sh 'echo ok one; echo not ok two: why; seq 100; exit 1'
shown "a script's failed check is shown" "not ok two: why"
shown "and what was said last" 100
if grep -q '| 50$' <<<"$said"; then echo "not ok but not all of it: $said"; else echo "ok but not all of it"; fi
expect "program that says a lot" "1 passed, 1 failed" test_a \
    'echo "50%: Checks: 2, Failures: 1, Errors: 0"; echo "tests/a.c:7:F:case:name:0: why"; seq 100; exit 1'
shown "a program's failed check is shown" "tests/a.c:7:F:case:name:0: why"

expect "nothing at all" "0 passed, 0 failed" .none ''

# Long tests are a set of their own.
expect "long script that is not asked for" "0 passed, 0 failed" ../long/b.sh 'echo ok one'
expect "long script" "1 passed, 0 failed" ../long/b.sh 'echo ok one' --long
expect "other script when long ones are" "0 passed, 0 failed" a.sh 'echo ok one' --long

said=$("$tree/scripts/test.sh" build build 2>&1)
if [[ $? == 2 && $said == *"the same folder" ]]; then
    echo "ok the same build twice is refused"
else
    echo "not ok the same build twice is refused: $said"
fi
