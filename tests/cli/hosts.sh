#!/usr/bin/env bash
# Several hosts, made by scripts/hosts.sh on this machine: MPI takes them for nodes and talks TCP between
# them, training gives the same bits as on one host, and a host that is lost ends the job in an orderly
# way. The whole of it is tests/long/hosts.sh.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
prepare
# shellcheck source=tests/cli/hosts_lib.sh
source "$(dirname "$0")/hosts_lib.sh"

# --- arguments ---
for case in '--hosts 1 true' '--hosts 2 --delay 5 true' '--hosts 2 --loss 100% true' '--hosts 2 --rate fast true' \
    '--hosts 2' '--hosts 2 no-such-program' '--at 1 cut 2' '--at x cut 2'; do
    code=0
    # shellcheck disable=SC2086 # words
    timeout 20 scripts/hosts.sh $case >"$work/out" 2>"$work/err" || code=$?
    wanted=2
    [[ $case != '--at 1 '* ]] || wanted=1
    equal "refused: $case" "$wanted 1" "$code $(grep -c '^hosts.sh: ' "$work/err")"
done

# --- nodes and wires ---
if ! OMPI_CC=${OMPI_CC:-gcc} mpicc -o "$work/nodes" tests/cli/nodes.c 2>"$work/err"; then
    echo "not ok nodes: $(head -n 1 "$work/err")"
    exit
fi
traffic() { awk '/^hosts.sh: host[0-9]:/ { n += $3 } END { print int(n / 1000000) }' "$work/err"; }
on_hosts 2 2 '' "$work/nodes" 0 1 20000000
equal "two hosts of two ranks are two nodes" "0 host1 2,1 host1 2,2 host2 2,3 host2 2" \
    "$(LC_ALL=C sort "$work/out" | paste -sd ,)"
equal "20 MB between ranks of a host: MB on the wires" 0 "$(traffic)"
on_hosts 2 2 '' "$work/nodes" 0 2 20000000
check "20 MB between hosts: MB on the wires" test "$(traffic)" -ge 20 -a "$(traffic)" -le 25

# --- training ---
train 1 one "${steady[@]}"
verdict "one host" "$code"
for case in '2 1' '2 2 --delay=1ms --loss=0.5%' '3 1 --rate=1gbit'; do
    read -r n ranks options <<<"$case"
    name=$n-$ranks
    train_hosts "$n" "$ranks" "${options//=/ }" "$name"
    verdict "$n hosts of $ranks ranks${options:+, $options}" "$code"
    same_state "the same state as on one: $case" "$(checkpoint one 6)" "$(checkpoint "$name" 6)"
    equal "the same losses: $case" "$(metric one loss)" "$(metric "$name" loss)"
done

# --- a host is lost ---
begin_hosts 3 1 '' killed
at kill 3
ends "all processes of a host die" 20
resumes "all processes of a host die" 2 1 killed

begin_hosts 2 1 '' cut
at cut 2
ends "a cable is cut" 40
check "a cable is cut: the host is named" grep -q 'node host2' "$work/err"
resumes "a cable is cut" 1 1 cut

# --- hosts.sh itself ---
begin_hosts 2 1 '' asked
kill -TERM "$pid"
code=0
wait "$job" || code=$?
equal "SIGTERM to hosts.sh: the run saves" 75 "$code"
begin_hosts 2 1 '' gone
child() { ps -o pid= --ppid "$1" | awk '{ print $1; exit }'; }
inner=$(child "$(child "$pid")")
kill -KILL "$pid"
wait "$job" 2>/dev/null
is_gone() {
    local tries=50
    while kill -0 "$inner" 2>/dev/null && ((tries-- > 0)); do sleep 0.1; done
    ((tries >= 0))
}
check "SIGKILL to hosts.sh: there was something" test -n "$inner"
check "SIGKILL to hosts.sh: all of it is gone" is_gone
rm -rf "${TMPDIR:-/tmp}/tutti-hosts.$pid"
