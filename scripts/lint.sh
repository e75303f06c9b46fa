#!/usr/bin/env bash
# lint.sh: what the compiler does not check about this code.
#
#   scripts/lint.sh [--root DIR] [--library FILE.a] [CHECK...]      all checks by default
#   scripts/lint.sh --self-test                     breaks every rule once and sees it refused
#
#   includes   the layers' arrows and who owns which outside header (the tables below)
#   text       forbidden words, line and file length, an opening comment in every file
#   format     clang-format, in the version that the formatting was made with
#   shell      shellcheck on every script
#   static     cppcheck
#   symbols    with --library: external names start with tt_, and there is no global mutable state
#
# Prints one line "FILE:LINE: what is wrong" a finding; exit 1 when there is one.
set -euo pipefail

# A file of the layer may include headers of itself and of these layers, no others.
layers='
base      :
numerics  : base
kernels   : base numerics
data      : base numerics
dist      : base numerics
model     : base numerics kernels
optim     : base numerics kernels
ckpt      : base numerics dist
train     : base numerics kernels data dist model optim ckpt
cli       : base numerics kernels data dist model optim ckpt train
'

# An outside header, or a header that lets one through, is included below this path only, there in at
# most so many files ("any": no limit).
owners='
omp.h                   src/base/                           1
yaml.h                  src/base/                           1
mpi.h                   src/dist/                           any
mpi.h                   include/tutti/dist/mpi_comm.h       1
tutti/dist/mpi_comm.h   src/dist/                           any
hdf5.h                  src/data/                           1
hdf5.h                  src/ckpt/                           1
cblas.h                 src/kernels/                        1
dnnl.h                  src/cli/                            1
immintrin.h             src/kernels/isa/                    any
immintrin.h             src/numerics/isa/                   any
simde/x86/avx512.h      src/kernels/isa/                    any
simde/x86/f16c.h        src/kernels/isa/                    any
gnu/libc-version.h      src/train/                          1
sanitizer/asan_interface.h src/base/                        1
'

# Anyone may include these. Public headers may include only the first line of them.
standard='
stdarg.h stdbool.h stddef.h stdint.h stdio.h string.h
assert.h ctype.h errno.h float.h inttypes.h limits.h locale.h math.h signal.h stdlib.h time.h
dirent.h fcntl.h fts.h pthread.h sched.h search.h strings.h unistd.h
sys/ioctl.h sys/mman.h sys/resource.h sys/stat.h sys/statvfs.h sys/syscall.h sys/time.h sys/types.h sys/wait.h
'

max_lines=800
max_columns=105 # clang-format keeps code within 100; prose may run over by a word
clang_format_version=14

includes() {
    find include src -name '*.[ch]' | LC_ALL=C sort | awk \
        -v layers="$layers" -v owners="$owners" -v standard="$standard" '
        BEGIN {
            n = split(layers, row, "\n")
            for (i = 1; i <= n; i++) {
                words = split(row[i], w, " ")
                if (words == 0) continue
                known[w[1]] = 1
                may[w[1], w[1]] = 1
                for (j = 3; j <= words; j++) may[w[1], w[j]] = 1
            }
            n = split(owners, row, "\n")
            for (i = 1; i <= n; i++) {
                if (split(row[i], w, " ") != 3) continue
                owned[w[1]] = owned[w[1]] " " w[2]
                limit[w[1], w[2]] = w[3]
            }
            n = split(standard, row, "\n")
            for (i = 1; i <= n; i++) {
                words = split(row[i], w, " ")
                if (words > 0) lines++
                for (j = 1; j <= words; j++) free[w[j]] = lines
            }
        }
        function say(what) { printf "%s:%d: %s\n", file, line, what }
        # Is `header` owned, and may this file have it?
        function check_owner(header,    places, count, i, found) {
            count = split(owned[header], places, " ")
            for (i = 1; i <= count; i++) {
                if (index(file, places[i]) != 1) continue
                found = 1
                if (!seen[header, places[i], file]++) users[header, places[i]]++
                if (limit[header, places[i]] != "any" && users[header, places[i]] > limit[header, places[i]])
                    say("<" header "> belongs to one file of " places[i] ", and another has it already")
            }
            if (!found) say("<" header "> may be included only in" owned[header])
        }
        function check_system(header) {
            if (header in owned) check_owner(header)
            else if (!(header in free))
                say("<" header "> is in no table of scripts/lint.sh; give it an owner or make it free")
            else if (public && free[header] > 1)
                say("a public header includes <" header ">; only those that scripts/lint.sh lists first")
        }
        function check_own(header,    part, count, there) {
            if (header in owned) check_owner(header)
            count = split(header, part, "/")
            if (part[1] == "tutti") {
                if (count == 2) return
                if (!(part[2] in known)) say("\"" header "\": there is no layer " part[2])
                else if (!((layer, part[2]) in may))
                    say(layer " may not include \"" header "\": " part[2] " is not below it")
                return
            }
            if (public) { say("a public header includes the private \"" header "\""); return }
            if (count > 1 && part[1] in known) {
                if (part[1] != layer)
                    say(layer " may not include \"" header "\": it is private to " part[1])
                return
            }
            there = file; sub(/[^\/]*$/, "", there)
            if (index(header, "..") > 0 || system("test -f " there header) != 0)
                say("\"" header "\" is not in " there "; name it from src/ on")
        }
        {
            file = $0; line = 0
            split(file, part, "/")
            public = part[1] == "include"
            layer = public ? part[3] : part[2]
            if (file == "include/tutti/version.h") layer = "base"
            if (!(layer in known)) { line = 1; say("there is no layer " layer); next }
            while ((getline text < file) > 0) {
                line++
                if (match(text, /^[ \t]*#[ \t]*include[ \t]*[<"]/)) {
                    header = substr(text, RLENGTH + 1)
                    quote = substr(text, RLENGTH, 1)
                    sub(/[>"].*/, "", header)
                    if (quote == "<") check_system(header); else check_own(header)
                }
            }
            close(file)
        }'
}

sources() {
    find include src tests scripts configs .ci Makefile -type f \
        \( -name '*.[ch]' -o -name '*.sh' -o -name '*.sbatch' -o -name '*.awk' -o -name '*.mk' -o -name '*.yaml' -o -name run -o \
        -name Makefile \) 2>/dev/null | LC_ALL=C sort
}

text() {
    # The words are spelled in two halves so that this file passes its own check.
    # shellcheck disable=SC2016 # awk's dollars
    sources | xargs awk -v max_lines=$max_lines -v max_columns=$max_columns \
        -v words="TO""DO|FIX""ME|XX""X|HA""CK" '
        function say(what) { printf "%s:%d: %s\n", FILENAME, FNR, what }
        FNR == 1 && FILENAME ~ /\.[ch]$/ && !/^\/\*/ { say("opens without a comment that says what it is") }
        FNR == max_lines + 1 && FILENAME !~ /golden/ { say("is longer than " max_lines " lines; one noun per file") }
        $0 ~ "(^|[^A-Za-z])(" words ")([^A-Za-z]|$)" { say("unfinished business: " $0) }
        # Those that a signal can interrupt; dist/watch.c writes from where only a bare call may, and base/log.c
        # opens what is no file.
        FILENAME ~ /^src\/.*\.c$/ && FILENAME !~ /base\/(file|log)\.c$|dist\/watch\.c$/ && /[^A-Za-z_0-9>](open|read|write|pread|pwrite|fsync|ftruncate|(posix_)?fallocate|sync_file_range)\(/ && !/^[ \t]*(\*|\/\*)/ {
            say("a bare system call: base/file.h has it with tt_, which goes on when a signal interrupts it") }
        /^[ \t]*#[ \t]*if[ \t]+0/ { say("code that is switched off") }
        /[ \t]$/ { say("blank at the end of the line") }
        /\t/ && FILENAME !~ /Makefile$|\.mk$/ { say("tab") }
        FILENAME ~ /\.[ch]$/ && FILENAME !~ /golden/ && length($0) > max_columns { say("longer than " max_columns " columns") }
    '
}

format() {
    local version
    version=$(clang-format --version | sed -n 's/.*version \([0-9]*\).*/\1/p')
    if [[ $version != "$clang_format_version" ]]; then
        echo "lint: clang-format $version is here, the code is formatted with $clang_format_version: not checked" >&2
        return
    fi
    find include src tests -name '*.[ch]' ! -name 'golden*' -print0 | LC_ALL=C sort -z |
        xargs -0 -n 16 -P 2 clang-format --dry-run 2>&1 | sed -n 's/: warning: code should be clang.*/: not formatted; make format/p'
}

shell() {
    sources | grep -E '\.(sh|sbatch)$|^\.ci/run$' | xargs shellcheck -x --format=gcc || true
}

static() {
    cppcheck --quiet -j 2 --std=c11 --enable=warning,performance,portability --inline-suppr \
        --suppress=missingIncludeSystem --suppress=unmatchedSuppression -D__x86_64__ -DTUTTI_FAULTS \
        -DTUTTI_CONFIG='"lint"' -Iinclude -Isrc --template='{file}:{line}: {message} [{id}]' src 2>&1
}

symbols() {
    [[ -n $library ]] || return 0
    nm -g --defined-only "$library" | awk '
        /:$/ { object = $1 }
        NF == 3 && $3 !~ /^(tt_|main$)/ { print object " external name without tt_: " $3 }'
    objdump -t "$library" | awk '
        / file format / { object = $1; sub(/:$/, "", object) }
        NF > 3 && $(NF - 2) ~ /^\.(data|bss|data\.rel|data\.rel\.local|tdata|tbss)$/ && $NF !~ /^\./ {
            name = $NF; sub(/\.[0-9]+$/, "", name)
            print object ": global mutable state: " name
        }'
}

# A tree with one fault per rule; every line of `expected` must be found in what lint says about it.
self_test() {
    local tree expected said missing=0
    tree=$(mktemp -d "${TMPDIR:-/tmp}/tutti-lint.XXXXXX")
    # shellcheck disable=SC2064 # the folder's name now, not later
    trap "rm -rf '$tree'" EXIT
    mkdir -p "$tree"/{include/tutti/{base,model},src/{base,model,data,kernels/isa,nowhere},scripts}
    printf '/* a */\n#include <mpi.h>\n' >"$tree/include/tutti/base/foreign.h"
    printf '/* a */\n#include <stdlib.h>\n' >"$tree/include/tutti/base/heavy.h"
    printf '/* a */\n#include "tutti/model/m.h"\n#include <immintrin.h>\n#include <curl.h>\n' >"$tree/src/base/up.c"
    printf '/* a */\n#include "tutti/dist/world.h"\n#include "data/data_impl.h"\n' >"$tree/src/model/wire.c"
    printf '/* a */\n#include <hdf5.h>\n' >"$tree/src/data/one.c"
    printf '/* a */\n#include <hdf5.h>\n' >"$tree/src/data/two.c"
    printf '/* a */\n#include <immintrin.h>\n#include <stdint.h>\n#include "tutti/base/heavy.h"\n' \
        >"$tree/src/kernels/isa/fine_avx2.c"
    printf '/* a */\n' >"$tree/src/nowhere/lost.c"
    printf 'int x; \n#if 0\n/* %s */\n#endif\n' 'TO''DO' >"$tree/src/data/text.c"
    printf '/* fsync(fd) in words */\nint f(int fd) { return tt_fsync(fd); }\nint g(int fd) { return fsync(fd); }\n' \
        >"$tree/src/data/bare.c"
    awk 'BEGIN { print "/* a */"; for (i = 0; i < 900; i++) print "" }' >"$tree/src/data/long.c"
    # shellcheck disable=SC2016 # the dollar is the fault
    printf '#!/bin/sh\necho $1\n' >"$tree/scripts/quote.sh"
    expected='include/tutti/base/foreign.h:2: <mpi.h> may be included only in
include/tutti/base/heavy.h:2: a public header includes <stdlib.h>
src/base/up.c:2: base may not include "tutti/model/m.h"
src/base/up.c:3: <immintrin.h> may be included only in
src/base/up.c:4: <curl.h> is in no table
src/model/wire.c:2: model may not include "tutti/dist/world.h"
src/model/wire.c:3: model may not include "data/data_impl.h": it is private to data
src/data/two.c:2: <hdf5.h> belongs to one file
src/nowhere/lost.c:1: there is no layer nowhere
src/data/text.c:1: opens without a comment
src/data/text.c:1: blank at the end
src/data/text.c:2: code that is switched off
src/data/text.c:3: unfinished business
src/data/bare.c:3: a bare system call
src/data/long.c:801: is longer than 800 lines
scripts/quote.sh:2:6: '
    said=$("$0" --root "$tree" includes text shell 2>&1) && {
        echo "lint: self-test: a tree full of faults passed" >&2
        missing=1
    }
    while read -r line; do
        grep -qF -- "$line" <<<"$said" || {
            echo "lint: self-test: not found: $line" >&2
            missing=1
        }
    done <<<"$expected"
    if grep -E 'fine_avx2|bare.c:[12]:' <<<"$said"; then
        echo "lint: self-test: a file without fault was refused" >&2
        missing=1
    fi
    return $missing
}

root=$(dirname "$0")/..
library=
checks=()
while (($# > 0)); do
    case $1 in
    --root | --library)
        [[ -n ${2:-} ]] || { echo "lint: $1 needs a path" >&2; exit 2; }
        if [[ $1 == --root ]]; then root=$2; else library=$(realpath "$2"); fi
        shift
        ;;
    --self-test)
        self_test
        exit
        ;;
    includes | text | format | shell | static | symbols) checks+=("$1") ;;
    *)
        sed -n '2,/^set -/s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
    esac
    shift
done
((${#checks[@]} > 0)) || checks=(includes text format shell static symbols)

cd "$root"
findings=$(for check in "${checks[@]}"; do "$check"; done)
if [[ -n $findings ]]; then
    printf '%s\n' "$findings"
    printf 'lint: %d findings\n' "$(wc -l <<<"$findings")" >&2
    exit 1
fi
