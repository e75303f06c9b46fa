#!/usr/bin/env bash
# Several hosts, the whole of it: 2, 3 and 4 of them, one and two ranks on each, wires that are slow and
# lose packets, in exact mode to the bit like one rank; every way to lose a host or a cable ends the job
# in time with nothing left, and the run goes on on what remains; a cable that is mended in time costs
# nothing; the step that the plan foretells is near the one that is measured. Some minutes.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/../cli/lib.sh"
prepare
sed -i 's/sequences: 12/sequences: 24/' "$work/tiny.yaml"
# shellcheck source=tests/cli/hosts_lib.sh
source "$(dirname "$0")/../cli/hosts_lib.sh"
limit=120

# --- the same bits ---
train 1 one "${steady[@]}"
verdict "one host" "$code"
for n in 2 3 4; do
    for ranks in 1 2; do
        for options in '' '--delay 2ms --loss 0.5% --rate 200mbit'; do
            for zero in 0 1; do
                name=$n-$ranks-$zero${options:+-slow}
                train_hosts "$n" "$ranks" "$options" "$name" memory.zero=$zero run.digest_every=1
                same_state "$n hosts of $ranks ranks, ZeRO $zero${options:+, $options}: the same state" \
                    "$(checkpoint one 6)" "$(checkpoint "$name" 6)"
                equal "$n hosts of $ranks ranks, ZeRO $zero${options:+, $options}: the same losses" \
                    "$(metric one loss)" "$(metric "$name" loss)"
            done
        done
    done
done

# --- the engine's ways over wires ---
# way "KEY=VALUE ...": trains so on $n hosts of $ranks ranks.
ways=0
way() {
    local name=way-$((++ways)) keys
    read -r -a keys <<<"$1"
    train_hosts "$n" "$ranks" "$options" "$name" run.digest_every=1 "${keys[@]}"
    same_state "$n hosts of $ranks ranks, $1: the same state" "$(checkpoint one 6)" "$(checkpoint "$name" 6)"
    equal "$n hosts of $ranks ranks, $1: the same losses" "$(metric one loss)" "$(metric "$name" loss)"
}
for case in '2 1' '2 2' '2 3' '3 2 --delay 1ms --loss 0.2% --rate 500mbit'; do
    read -r n ranks options <<<"$case"
    case $ranks in
    1) nears=(dist.node_shared=auto) ;;
    2) nears=(dist.node_shared=false dist.node_shared=true) ;;
    3) nears=(dist.node_ranks=2) ;; # nodes of two and of one
    esac
    for near in "${nears[@]}"; do
        for overlap in true false; do
            for divides in 0 1 '2 whole' '2 pieces' '3 whole' '3 pieces'; do
                read -r zero gradients <<<"$divides"
                way "memory.zero=$zero memory.gradients=${gradients:-auto} dist.overlap=$overlap $near"
            done
        done
    done
done

# --- losses ---
begin_hosts 3 2 '' killed
at kill 3
ends "a host's processes die" 20
resumes "a host's processes die" 2 2 killed

begin_hosts 4 2 '--delay 500us' cut
at cut 3
ends "a cable is cut" 40
check "a cable is cut: the host is named" grep -q 'node host3' "$work/err"
resumes "a cable is cut" 3 2 cut

begin_hosts 3 1 '' off
at off 2
ends "a host loses power" 40
resumes "a host loses power" 2 1 off

begin_hosts 2 2 '' rank
kill_rank() { at run "$1" kill "-$2" "$(rank_of "$1")"; }
kill_rank 2 KILL
ends "a rank is killed" 30
resumes "a rank is killed" 2 2 rank

# The launcher dies with its host: nobody is there to give an exit code, and nothing must be left.
begin_hosts 3 1 '' first
at kill 1
code=0
wait "$job" || code=$?
check "the launcher's host dies: the job fails" test "$code" != 0 -a "$code" != 124
equal "the launcher's host dies: nothing is left behind" "" "$(grep 'left behind' "$work/err")"
resumes "the launcher's host dies" 2 1 first

# --- a cable that is mended ---
begin_hosts 2 1 '' mended
at cut 2
before=$(metric mended loss | wc -l)
sleep 2
equal "while the cable is cut nothing moves" "$before" "$(metric mended loss | wc -l)"
at mend 2
tries=0
until (($(metric mended loss | wc -l) > before + 20)) || ((++tries > 200)); do sleep 0.1; done
check "mended: the run goes on" test "$tries" -le 200
kill -TERM "$pid"
code=0
wait "$job" || code=$?
equal "mended: it stops when asked" 75 "$code"
resumes "mended" 2 1 mended

# --- no progress ---
if grep -q 'dist\.timeout' <<<"$("$tutti" options)"; then
    begin_hosts 3 1 '' stopped dist.timeout=3
    kill_rank 2 STOP
    ends "a rank is stopped" 60 # it is the only one of its host, which may be gone for all the others know
    check "a rank is stopped: it is named" grep -q '^tutti: rank [02]: rank 1 (host host2) has made no progress' "$work/err"
    resumes "a rank is stopped" 3 1 stopped

    # The launcher finds out later than the ranks do.
    export OMPI_MCA_oob_tcp_keepalive_time=20
    begin_hosts 3 1 '' silent dist.timeout=10
    at cut 2
    ends "a silent host" 75
    check "a silent host: its rank is named" grep -q '^tutti: rank [02]: rank 1 (host host2) has made no progress' "$work/err"
    resumes "a silent host" 2 1 silent
    unset OMPI_MCA_oob_tcp_keepalive_time
else
    echo "skip no progress: this build has no dist.timeout"
fi

# --- foretold and measured ---
# Compute takes turns on this machine's processors, so only the wire's part is held to anything: the wire
# is slow enough to be most of the step.
if grep -q latency_us <<<"$("$release" plan --help)"; then
    code=0
    TUTTI_BIN=$release timeout 600 scripts/measure_wire.sh --hosts '2 3 4' --delays '0us 2ms' --rates 200mbit \
        --steps 10 >"$work/out" 2>"$work/err" || code=$?
    verdict "steps over wires are measured" "$code"
    sed 's/^/note /' "$work/out"
    equal "rows" 6 "$(awk '$3 == "200mbit"' "$work/out" | wc -l)"
    equal "rows whose step is not between half and twice the plan's" "" \
        "$(awk '$3 == "200mbit" && !($6 >= 0.5 && $6 <= 2)' "$work/out")"
else
    echo "skip foretold and measured: this build's plan foretells no steps"
fi
