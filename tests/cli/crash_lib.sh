# shellcheck shell=bash
# crash_lib.sh: what the tests share that kill a run again and again. Sourced after lib.sh and `prepare`.

# shellcheck disable=SC2154 # tutti, work, limit, code: lib.sh's
# A run of many numbers that must survive: dropout, documents of many lengths, a loss scale that moves.
path=(run.exact=true optim.schedule=constant optim.warmup=20 model.dropout=0.1 data.train="$work/documents.h5"
    data.mode=documents precision.compute=fp16 precision.loss_scale=dynamic scaler.start=1048576
    scaler.interval=7 run.digest_every=1 run.trace_data=true)

# What a launcher that is killed leaves of its own goes with the test.
shared=$(mktemp -d "$([[ -w /dev/shm ]] && echo /dev/shm || echo "$work")/tutti-crash.XXXXXX")
trap 'rm -rf "$work" "$shared"' EXIT
mkdir "$work/tmp"
export TMPDIR=$work/tmp OMPI_MCA_btl_vader_backing_directory=$shared OMPI_MCA_osc_sm_backing_directory=$shared

# nap MS
nap() { sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"; }

# Steps that the metrics have: the last, or 0.
last_step() { metric loop loss 2>/dev/null | tail -n 1 | cut -d ' ' -f 1 | grep . || echo 0; }

# Whoever still works on the run: its ranks, also those that the launcher was about to start, and the launcher.
still_there() { pgrep -f "run[.]dir=$work/loop( |\$)"; }

# One life of the run: begun with choices of its own, and killed at a moment of its own. $landed: it was.
life() {
    local ranks who when moment which before pids=() launcher tries=0 left file choices=()
    any 4 && ranks=$((1 + drawn))
    any 4 && choices+=("memory.zero=$drawn")
    any 3 && choices+=(run.save_every=$((1 + drawn)))
    any 3 && choices+=(run.keep=$((1 + drawn)))
    any 2 && choices+=(run.keep_every=$((10 * drawn)))
    any 3 && who=$drawn
    any 4 && when=$drawn
    any 1500 && moment=$drawn
    any "$ranks" && which=$drawn
    ((lives % 2)) && choices+=(run.save_async=true)
    before=$(last_step)
    rm -f "$work"/loop.pid.*
    # shellcheck disable=SC2016 # the inner shell's dollars
    scripts/run.sh -n "$ranks" -t 60 bash -c 'echo $$ >"$0.${OMPI_COMM_WORLD_RANK:-0}"; exec "$@"' \
        "$work/loop.pid" "$tutti" train "$work/tiny.yaml" "run.dir=$work/loop" "${path[@]}" \
        run.steps=1000000 "${choices[@]}" >"$work/out" 2>"$work/err" &
    local job=$!
    if ((when == 0)); then # at any time, also before there is anything
        nap "$moment"
    else # amid steps and saves
        until (($(last_step) > before)) || ((++tries > 400)) || ! kill -0 "$job" 2>/dev/null; do nap 50; done
        nap "$moment"
    fi
    for file in "$work"/loop.pid.*; do [[ ! -s $file ]] || pids+=("$(<"$file")"); done
    tries=0
    until launcher=$(pgrep -P "$job" -x 'mpirun|orterun') || ((++tries > 40)); do nap 25; done # run.sh's child
    if ((${#pids[@]} == 0 || who == 2)); then
        who="the launcher"
        # shellcheck disable=SC2086 # one number, or none
        [[ -z $launcher ]] || kill -KILL $launcher 2>/dev/null
    elif ((who == 1)); then
        who="all ranks"
        kill -KILL "${pids[@]}" 2>/dev/null
    else
        who="a rank"
        kill -KILL "${pids[which % ${#pids[@]}]}" 2>/dev/null
    fi
    code=0
    wait "$job" || code=$?
    landed=$((code != 0 && code != 75))
    # A launcher that is gone leaves ranks that find out; one job at a time is in the folder.
    tries=0
    while left=$(still_there) && ((++tries <= 600)); do nap 50; done
    if [[ -n $left ]]; then
        echo "not ok killed: ranks are left behind: $left"
        # shellcheck disable=SC2086 # numbers
        kill -KILL $left
    fi
    for file in "$work"/loop/step-*.h5; do
        [[ ! -e $file ]] || verify "$file" || echo "not ok killed: $(basename "$file") is not whole"
    done
    lives=$((lives + 1))
    killed[$who]=$((${killed[$who]-0} + 1))
    # What was said must be a run's own words, if any.
    if ((code == 1)) && ! grep -q '^tutti: ' "$work/err"; then
        echo "not ok killed: exit code 1 without a sentence"
    fi
    if ((code == 0 || code == 2 || code == 124)); then
        echo "not ok killed: exit code $code: $(tail -n 2 "$work/err" | tr '\n' ' ')"
    fi
}

# crash_loop KILLS: then the run is left alone, and must be the run that nothing happened to.
crash_loop() {
    local kills=$1 lives=0 landed=0 done=0 last name="after $1 kills"
    local -A killed=()
    while ((done < kills && lives < 2 * kills)); do
        life
        done=$((done + landed))
    done
    equal "kills" "$kills" "$done"
    last=$(($(last_step) + 5))
    for who in "${!killed[@]}"; do echo "note killed: $who, ${killed[$who]} times"; done
    trained "$name: the run is left alone" 3 loop "${path[@]}" "run.steps=$last" run.save_every=2 run.keep=2
    echo "note killed $done times within $last steps"
    trained "$name: a run that nothing happens to" 1 calm "${path[@]}" "run.steps=$last"
    check "$name: the same digests in every step" cmp "$work/calm/digests.jsonl" "$work/loop/digests.jsonl"
    check "$name: the same data" cmp "$work/calm/data.jsonl" "$work/loop/data.jsonl"
    equal "$name: every step once" "$(seq "$last" | cksum)" "$(metric loop loss | cut -d ' ' -f 1 | cksum)"
    for key in loss grad_norm lr loss_scale tokens_seen; do
        equal "$name: the same $key" "$(metric calm $key | cksum)" "$(metric loop $key | cksum)"
    done
    check "$name: the loss scale has moved" test "$(metric loop loss_scale | cut -d ' ' -f 2 | sort -u | wc -l)" -gt 1
    same_state "$name: the same state" "$(checkpoint calm "$last")" "$(checkpoint loop "$last")"
    equal "$name: nothing half is left" "" "$(find "$work/loop" -name '*.part')"
    json "$name: lines are whole" "$work/loop/metrics.jsonl"
}
