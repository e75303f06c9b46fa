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
# What gnuplot is told of 200 steps whose loss falls by 1 with a jitter of 0.5, one not finite: means
# over 5 steps that fall evenly, fewer at the ends, a gap, and ticks that differ.
mkdir "$work/long" "$work/bin"
awk 'BEGIN {
    for (i = 1; i <= 200; i++) {
        loss = i == 100 ? "null" : 300 - i + (i % 2 ? 0.5 : -0.5)
        printf "{\"step\": %d, \"loss\": %s, \"tokens\": 8, \"lr\": 0.001}\n", i, loss
    }
}' >"$work/long/metrics.jsonl"
cat >"$work/bin/gnuplot" <<'FAKE'
#!/usr/bin/env bash
tee "${0%/*}/told" | sed -n "s/^plot '\([^']*\)'.*/\1/p" | xargs -I {} cp {} "${0%/*}/columns"
sed -n 's/^set output "\(.*\)"/\1/p' "${0%/*}/told" | xargs touch
FAKE
chmod +x "$work/bin/gnuplot"
PATH=$work/bin:$PATH scripts/plot_loss.sh "$work/long" "$work/long.png" >"$work/said" 2>&1 &&
    grep -q "using 1:2 .*using 1:4 .*'mean loss'" "$work/bin/told" &&
    awk '{ off = $4 - (300 - $1) }
        NR != $1 || NF != 4 { exit bad = 1 }
        NR == 1 && off != 0.5 || NR == 200 && (off < 0.83 || off > 0.84) { exit bad = 1 }
        NR == 100 { if ($2 != "NaN" || $4 != "NaN") exit bad = 1; next }
        NR > 2 && NR < 98 && (off > 0.11 || off < -0.11) { exit bad = 1 }
        END { exit bad || NR != 200 }' "$work/bin/columns"
verdict "mean loss over the loss of each step" $?
grep -q '^set format y2 "%g"' "$work/bin/told"
verdict "ticks of the learning rate differ" $?
scripts/plot_loss.sh "$work/empty" "$work/none.png" >"$work/said" 2>&1
[[ $? == 2 && ! -e $work/none.png ]] && grep -q 'holds no steps' "$work/said"
verdict "run without steps is refused" $?
scripts/plot_loss.sh "$work/nowhere" "$work/none.png" >"$work/said" 2>&1
[[ $? == 2 ]] && grep -q 'cannot read' "$work/said"
verdict "missing run is refused" $?
PATH=$work/bin:$PATH scripts/plot_loss.sh --key loss --against tokens "$work/run" "$work/long" "$work/two.png" \
    >"$work/said" 2>&1 && [[ $(grep -o "using 1:4" "$work/bin/told" | wc -l) == 2 ]] &&
    grep -q "title 'run'.*title 'long'" "$work/bin/told" && grep -q 'set xlabel "sum of tokens"' "$work/bin/told" &&
    awk '$1 != 8 * NR { exit bad = 1 } END { exit bad || NR != 6 }' "$work/bin/columns"
verdict "two runs in one picture, against a sum" $?
scripts/plot_loss.sh "$work/run" "$work/long" "$work/out/two.png" >"$work/said" 2>&1 &&
    [[ $(head -c 4 "$work/out/two.png" | tail -c 3) == PNG ]]
verdict "picture of two runs" $?
scripts/plot_loss.sh --key nothing "$work/run" "$work/long" "$work/none.png" >"$work/said" 2>&1
[[ $? == 2 && ! -e $work/none.png ]] && grep -q 'holds no steps with a nothing' "$work/said"
verdict "key that no step has is refused" $?
