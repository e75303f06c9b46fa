# shellcheck shell=bash
# run_dir.sh: what scripts that start a run again want to know of its folder. Sourced. Arguments are those of
# `tutti train`: CONFIG [key=value ...].

# given KEY CONFIG [key=value ...]: what the user says of a key of the section run.
given() {
    local word value
    value=$(sed -nE "s/^(.*[{,])?[[:space:]]*$1:[[:space:]]*([^,}#]*).*/\2/p" "$2" 2>/dev/null | tr -d "\"'" |
        sed 's/[[:space:]]*$//')
    for word in "${@:3}"; do
        [[ $word != "run.$1="* ]] || value=${word#*=}
    done
    printf '%s' "$value"
}

# The newest checkpoint's name; nothing when there is none.
newest() {
    local folder
    folder=$(given dir "$@")
    (
        shopt -s nullglob
        files=("${folder:-runs/default}"/step-*.h5)
        ((${#files[@]} == 0)) || printf '%s' "${files[-1]}"
    )
}

# The same, and which file that is: a run that begins anew may make one of the same name.
mark() {
    local file
    file=$(newest "$@")
    [[ -z $file ]] || printf '%s %s' "$file" "$(stat -c '%i %y' "$file" 2>/dev/null)"
}

# anew FIRST CONFIG [key=value ...]: prints run.resume=auto where the user's never is done: when this run has a
# checkpoint, which FIRST, the mark from before its first start, is not. Until then what is in the folder may
# be an earlier run's.
anew() {
    local now
    now=$(mark "${@:2}")
    if [[ -n $now && $now != "$1" && $(given resume "${@:2}") == never ]]; then
        echo run.resume=auto
    fi
}
