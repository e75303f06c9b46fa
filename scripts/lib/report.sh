# shellcheck shell=bash
# report.sh: what the scripts share that run the program and print a table. Sourced by them in the project's
# folder; then they read their arguments with `request`, check them, and may `build_tokens` and `into_readme`.
#
# All files are below $work, which goes at the end. TUTTI_BIN is the program, default build/release/tutti.
#
# shellcheck disable=SC2034 # config, keys: the sourcing script's

export LC_ALL=C
tutti=$(realpath -m "${TUTTI_BIN:-build/release/tutti}")

fail() { # exit code, sentence
    printf '%s: %s\n' "$(basename "$0")" "$2" >&2
    exit "$1"
}

# request OPTIONS ARGUMENT...: reads the arguments. OPTIONS are words: readme lets --readme set $readme to yes,
# ranks= lets --ranks VALUE set $ranks (an option's hyphens are underscores there), CONFIG lets a name that is no
# option set $config. What is key=value goes to the array $keys. --help prints the script's opening comment.
request() {
    local options=" $1 " name
    shift
    keys=()
    while (($# > 0)); do
        name=${1#--}
        case $1 in
        -h | --help)
            sed -n '2,${/^#/!q;s/^# \{0,1\}//p}' "$0"
            exit 0
            ;;
        --*[!a-z-]* | -[!-]*) fail 2 "unknown argument '$1'; see --help" ;;
        --*)
            if [[ $options == *" $name "* ]]; then
                declare -g "${name//-/_}=yes"
            elif [[ $options == *" $name= "* ]]; then
                (($# > 1)) || fail 2 "$1 needs a value"
                declare -g "${name//-/_}=$2"
                shift
            else
                fail 2 "unknown argument '$1'; see --help"
            fi
            ;;
        *=*) keys+=("$1") ;;
        *)
            [[ $options == *' CONFIG '* ]] || fail 2 "unknown argument '$1'; see --help"
            config=$1
            ;;
        esac
        shift
    done
    [[ -x $tutti ]] || fail 2 "$tutti is not there; run make, or set TUTTI_BIN"
    work=$(mktemp -d "${TMPDIR:-/tmp}/tutti-$(basename "$0" .sh).XXXXXX")
    trap 'rm -rf "$work"' EXIT
}

# build_tokens FILE...: $work/tokens.h5.
build_tokens() {
    "$tutti" data build --out "$work/tokens.h5" "$@" >"$work/log" 2>&1 ||
        fail 1 "no token file: $(tail -n 1 "$work/log")"
}

# value KEY: the first in the JSON on stdin.
value() { grep -o "\"$1\": [^,}]*" | head -n 1 | sed 's/.*: //'; }

# into_readme NAME: stdin in place of what is between README's markers of this name.
into_readme() {
    if ! grep -q "^<!-- $1:" README.md || ! grep -q "^<!-- /$1 " README.md; then
        fail 1 "README.md has no markers for the table"
    fi
    { sed "/^<!-- $1:/q" README.md; cat; sed -n "/^<!-- \/$1 /,\$p" README.md; } >"$work/readme"
    cat "$work/readme" >README.md
}
