# shellcheck shell=bash
# weather_lib.sh: what the tests of bad weather share. Sourced after lib.sh and `prepare`.
#
# Six steps in exact mode, saved every second one, so that a run that was disturbed has the bits of one that
# was not, on any ranks. A disturbed run goes on, or ends with one sentence and leaves what was saved before;
# `chain` disturbs one run again and again, each start going on from where the one before was stopped, and in
# the end it must be the run that nothing happened to.

# shellcheck disable=SC2154 # tutti, work, limit, code: lib.sh's
steady=(run.exact=true optim.schedule=constant model.dropout=0.1 run.digest_every=1 run.trace_data=true
    run.steps=6 run.save_every=2 run.keep=0)

if ! "${CC:-gcc}" -std=c11 -O1 -shared -fPIC -o "$work/io.so" tests/io/shim.c 2>"$work/err"; then
    echo "not ok shim: $(head -n 1 "$work/err")"
    exit
fi
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0

trained "a run that nothing happens to" 2 whole "${steady[@]}"

# under "WORDS" RANKS NAME KEY=VALUE...: like train, in such weather. $work/io.R: what rank R met.
under() {
    local words=$1 ranks=$2 dir=$work/$3
    shift 3
    rm -f "$work"/io.[0-9]*
    code=0
    scripts/run.sh -n "$ranks" -t "$limit" env "LD_PRELOAD=$work/io.so" "TUTTI_IO=$words" \
        "TUTTI_IO_LOG=$work/io" "$tutti" train "$work/tiny.yaml" "run.dir=$dir" "${steady[@]}" "$@" \
        >"$work/out" 2>"$work/err" || code=$?
}

# struck WORD...: each was met by some rank.
struck() {
    local word
    for word; do
        grep -qsx -- "$word" "$work"/io.[0-9]* || return 1
    done
}

# look_at DIR [part]: $wrong: what is in a run's folder that should not be, or is not the run's that nothing
# happened to; nothing when all is well. part: a leftover may be there. A file is looked into once.
declare -A good=()
look_at() {
    local file name id
    wrong=
    for file in "$work/$1"/.[!.]* "$work/$1"/*; do
        name=$(basename "$file")
        case $name in
        '*' | '.[!.]*' | metrics.jsonl | data.jsonl | digests.jsonl | *lock) ;;
        # Killed or left hanging, a run cannot tidy up. Lines are rewritten beside as well.
        .step-*.part | *.jsonl.part) [[ ${2-} == part ]] || wrong+="$name " ;;
        step-*.h5)
            id="$file $(stat -c '%i %z' "$file")"
            if [[ ${good[$id]-} ]]; then
                continue
            elif "$tutti" checkpoint diff "$work/whole/$name" "$file" >/dev/null 2>&1 && verify "$file" 2>/dev/null; then
                good[$id]=yes
            else
                wrong+="$name "
            fi
            ;;
        *) wrong+="$name " ;;
        esac
    done
}

# Lines that are not whole, of all files of lines.
torn_lines() { cat "$work/$1"/*.jsonl 2>/dev/null | grep -vc '^{.*}$'; }

# undisturbed NAME DIR: every step is there once, with the bits that it should have, and the state at the end.
undisturbed() {
    local name=$1 dir=$2 rc=0 why='' wrong
    look_at "$dir"
    if ! cmp -s "$work/whole/digests.jsonl" "$work/$dir/digests.jsonl"; then
        why="digests differ: $(diff "$work/whole/digests.jsonl" "$work/$dir/digests.jsonl" | cut -c -40 | tr '\n' '|')"
    elif ! cmp -s "$work/whole/data.jsonl" "$work/$dir/data.jsonl"; then
        why="other data: $(cut -c -12 "$work/$dir/data.jsonl" | tr '\n' ' ')"
    elif [[ $(metric whole loss) != "$(metric "$dir" loss)" ]]; then
        why="other losses: $(metric "$dir" loss | tr '\n' '|')"
    elif [[ $(torn_lines "$dir") != 0 ]]; then
        why="torn lines"
    elif [[ -n $wrong ]]; then
        why="in its folder: $wrong"
    elif [[ ! -e $(checkpoint "$dir" 6) ]]; then
        why="it has not ended: $(tail -n 1 "$work/err")"
    fi
    [[ -z $why ]] || rc=1
    verdict "$name" $rc "$why"
}

# undisturbed_so_far NAME: the same of the chain, of the steps that have been made.
undisturbed_so_far() {
    local rc=0 why='' wrong
    look_at "$chain"
    if ! cmp -s <(head -n "$(wc -l <"$work/$chain/digests.jsonl")" "$work/whole/digests.jsonl") \
        "$work/$chain/digests.jsonl"; then
        why="digests differ"
    elif [[ -n $wrong ]]; then
        why="in its folder: $wrong"
    fi
    [[ -z $why ]] || rc=1
    verdict "$1" $rc "$why"
}

# After a run that was to end: its exit code, one sentence with these words, and nothing half.
ended() { # NAME DIR CODE WORDS [part]
    local name=$1 dir=$2 wanted=$3 words=$4 rc=0 why='' wrong
    look_at "$dir" "${5-}"
    if ((code != wanted)); then
        why="exit code $code, not $wanted"
    elif ((wanted == 1)) && [[ $(grep -c '^tutti: ' "$work/err") != 1 ]]; then
        why="not one sentence"
    elif ! grep '^tutti: \|^run.sh: ' "$work/err" | grep -qF -- "$words"; then
        why="'$words' is not in it"
    elif [[ -n $wrong ]]; then
        why="in its folder: $wrong"
    elif [[ $(torn_lines "$dir") != 0 && ${5-} != part ]]; then
        why="torn lines"
    fi
    [[ -z $why ]] || rc=1
    verdict "$name" $rc "$why: $(tail -n 4 "$work/err" | head -c 600 | tr '\n' '|')"
}

# --- chains: each start of one run is disturbed -----------------------------------------------------------
# start_chain NAME KEY=VALUE...: of the run $chain, saved after two steps already.
chain='' keys=() links=0
start_chain() {
    chain=$1 keys=("${@:2}") links=0
    rm -rf "${work:?}/$chain"
    train 2 "$chain" "${steady[@]}" run.steps=2 "${keys[@]}"
    ((code == 0)) || verdict "$chain: two steps" 1
}

# ends RANKS "WORDS" SENTENCE KEY=VALUE...: the next start ends with this; only what was there is there.
ends() {
    local ranks=$1 words=$2 sentence=$3 name="$chain: $2 on $1 ranks" rc=0 before after
    shift 3
    links=$((links + 1))
    before=$(cd "$work/$chain" && find . -name '*.h5')
    under "$words" "$ranks" "$chain" "${keys[@]}" "$@"
    after=$(cd "$work/$chain" && find . -name '*.h5')
    ended "$name" "$chain" 1 "$sentence"
    [[ $before == "$after" ]] || rc=1
    grep -qs ' E\|^flip$' "$work"/io.[0-9]* || rc=1
    verdict "$name: it struck, and nothing new is there" $rc "$(cat "$work"/io.[0-9]* | tr '\n' ' '), $after"
}

# dies RANKS "WORDS" KEY=VALUE...: a rank dies of the next start; what it leaves half-made is no checkpoint.
dies() {
    local ranks=$1 words=$2
    shift 2
    links=$((links + 1))
    under "$words" "$ranks" "$chain" "${keys[@]}" "$@"
    ended "$chain: $words on $ranks ranks" "$chain" 137 "was ended by signal 9" part
}

# crashes RANKS RANK POINT STEP KEY=VALUE...: the same at a named point.
crashes() {
    local ranks=$1 fault=crash_at=$3:rank=$2,step=$4
    shift 4
    links=$((links + 1))
    TUTTI_FAULT=$fault train "$ranks" "$chain" "${steady[@]}" "${keys[@]}" "$@"
    ended "$chain: $fault on $ranks ranks" "$chain" 137 "was ended by signal 9" part
}

# end_chain RANKS: the start that nothing happens to.
end_chain() {
    train "$1" "$chain" "${steady[@]}" "${keys[@]}"
    verdict "$chain: the start after all that" "$code"
    undisturbed "$chain: after $links disturbances as if nothing had happened" "$chain"
}

# --- what a run must bear -----------------------------------------------------------------------------------
# bears RANKS "WORDS" "MET..." KEY=VALUE...: the run goes on from two steps, and to its end.
bears() {
    local ranks=$1 words=$2 met name="bears $2 on $1 ranks${4:+, $4}"
    read -r -a met <<<"$3"
    shift 3
    rm -rf "$work/bears"
    train 2 bears "${steady[@]}" run.steps=2
    under "$words" "$ranks" bears "$@"
    verdict "$name" "$code"
    check "$name: it was so" struck "${met[@]//+/ }"
    undisturbed "$name: as if nothing had happened" bears
}
