#!/usr/bin/env bash
# Ranks of a node that share memory, as a user meets it: the same weights as without, and where there is
# no room for windows a run that goes on without them and says how to give it room, or is refused.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
prepare

large=(model.layers=4 model.channels=256 model.heads=4 run.steps=2 run.exact=true run.digest_every=1)
digest() { metric "$1" digest | tail -n 1 | cut -d ' ' -f 2; }

trained "ranks share memory" 2 shared "${large[@]}" dist.node_shared=true
wanted=$(digest shared)
trained "ranks share nothing" 2 apart "${large[@]}" dist.node_shared=false
equal "the weights are the same" "$wanted" "$(digest apart)"
check "nobody is told of it" test "$(grep -c 'share no memory' "$work/err")" = 0

# A file system for windows that is too small: of this process and its children alone.
small=$work/small
mkdir "$small"
if ! unshare --mount sh -c "mount -t tmpfs -o size=4m none '$small'" 2>/dev/null; then
    echo "note skipped: no mount namespace of its own; where windows have no room was not tried"
    exit
fi
# narrow NAME KEY=VALUE...: trains where windows have 4 MB.
narrow() {
    local dir=$work/$1
    shift
    code=0
    OMPI_MCA_osc_sm_backing_directory=$small unshare --mount sh -c "
        mount -t tmpfs -o size=4m none '$small'
        exec \"\$@\"" sh scripts/run.sh -n 2 -t "$limit" "$tutti" train "$work/tiny.yaml" "run.dir=$dir" \
        "${large[@]}" "$@" >"$work/out" 2>"$work/err" || code=$?
}
narrow fallback
verdict "without room a run goes on" "$code"
check "it says so, and how to get room" grep -q "share no memory: $small has room for .*remount,size=" "$work/err"
equal "it learns the same" "$wanted" "$(digest fallback)"
narrow refused dist.node_shared=true
equal "asked for, it is refused" 1 "$code"
check "in a sentence with the way out" grep -q "dist.node_shared is true, but $small has room for .*remount,size=" "$work/err"
check "nothing is begun" test ! -e "$work/refused/metrics.jsonl"
