#!/usr/bin/env bash
# quick: yes
# The table of options in README.md is what the program prints; flags read as in the help; every script
# and file it names exists.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit

if diff <(sed '1,/^<!-- options/d; /^<!-- \/options/,$d' README.md) <("$TUTTI_BIN" options --markdown); then
    echo "ok options in README"
else
    echo "not ok options in README: make readme writes them anew"
fi

# "--valid FRACTION" in the list of commands is the same in the help of the command.
wrong=
while read -r command flag; do
    "$TUTTI_BIN" "$command" --help 2>&1 | grep -q -e "$flag" || wrong+=" $command: $flag;"
done < <(
    sed -n '/^## Commands/,/^Every command/s/^    tutti \([a-z]*\) /\1 /p' README.md |
        awk '{ while (match($0, /--[a-z_-]+ [A-Z][A-Z.a-z0-9]*/)) {
            print $1, substr($0, RSTART, RLENGTH)
            $0 = $1 " " substr($0, RSTART + RLENGTH)
        } }'
)
if [[ -z $wrong ]]; then
    echo "ok flags in README"
else
    echo "not ok flags in README, not so in the help:$wrong"
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
