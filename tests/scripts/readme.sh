#!/usr/bin/env bash
# quick: yes
# The table of options in README.md is what the program prints; every script and file it names exists.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit

if diff <(sed '1,/^<!-- options/d; /^<!-- \/options/,$d' README.md) <("$TUTTI_BIN" options --markdown); then
    echo "ok options in README"
else
    echo "not ok options in README: make readme writes them anew"
fi

# Paths from the top, and in the tour also paths from src/ in backquotes.
missing=
while read -r path; do
    [[ -e $path ]] || missing+=" $path"
done < <(
    grep -oh '\(scripts\|configs\|src\|include/tutti\)/[A-Za-z0-9_./-]*[a-z]' README.md src/README.md
    # shellcheck disable=SC2016 # the backquotes are the text's
    grep -oh '`[a-z]*/[a-z_0-9]*\.[ch]`' src/README.md | tr -d '`' | sed 's,^,src/,'
)
if [[ -z $missing ]]; then
    echo "ok files named in README"
else
    echo "not ok files named in README:$missing"
fi
