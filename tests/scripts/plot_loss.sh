#!/usr/bin/env bash
# quick: yes
# The loss plot: a picture from a run's metrics, with a gap where a loss was not finite; refusals.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
work=$(mktemp -d "${TMPDIR:-/tmp}/tutti-plot.XXXXXX")
trap 'rm -rf "$work"' EXIT

verdict() { # name, condition's exit code
    if (($2 == 0)); then echo "ok $1"; else echo "not ok $1: $(tail -n 1 "$work/said")"; fi
}

if ! command -v gnuplot >/dev/null; then
    echo "skip loss plot: gnuplot is not installed"
    exit 0
fi
mkdir "$work/run" "$work/empty"
{
    echo '{"run": {"version": "0", "config": {"optim": {"lr": 1}}}}'
    for step in 1 2 3 4 5 6; do
        loss=$((8 - step)).5
        [[ $step == 4 ]] && loss=null
        printf '{"step": %d, "loss": %s, "tokens": 8, "lr": 0.001, "loss_scale": 1}\n' $step $loss
    done
    echo '{"step": 6, "valid_loss": 2.25, "valid_tokens": 8}'
} >"$work/run/metrics.jsonl"
echo '{"run": {}}' >"$work/empty/metrics.jsonl"

scripts/plot_loss.sh "$work/run" "$work/out/loss.png" >"$work/said" 2>&1 &&
    [[ $(head -c 4 "$work/out/loss.png" | tail -c 3) == PNG ]]
verdict "picture" $?
scripts/plot_loss.sh --text "$work/run" >"$work/said" 2>&1 && grep -q 'validation loss' "$work/said"
verdict "text plot" $?
scripts/plot_loss.sh "$work/empty" "$work/none.png" >"$work/said" 2>&1
[[ $? == 2 && ! -e $work/none.png ]] && grep -q 'holds no steps' "$work/said"
verdict "run without steps is refused" $?
scripts/plot_loss.sh "$work/nowhere" "$work/none.png" >"$work/said" 2>&1
[[ $? == 2 ]] && grep -q 'cannot read' "$work/said"
verdict "missing run is refused" $?
