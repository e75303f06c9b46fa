#!/usr/bin/env bash
# plot_loss.sh: draws loss, validation loss and learning rate of a run with gnuplot. In runs of 100
# steps or more, the loss of each step is light, and its mean over the steps around (1% of
# the run to both sides) is bold.
#
#   scripts/plot_loss.sh RUN_DIR OUT.png
#   scripts/plot_loss.sh --text RUN_DIR       on the terminal instead
#
# Reads RUN_DIR/metrics.jsonl.
set -euo pipefail

if [[ ${1:-} == --help || ${1:-} == -h ]]; then
    sed -n '2,/^set -/s/^# \{0,1\}//p' "$0"
    exit 0
fi
text=
[[ ${1:-} == --text ]] && { text=1; shift; }
if (($# != (text ? 1 : 2))); then
    sed -n '2,/^set -/s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
run=$1
out=${2:-}
metrics=$run/metrics.jsonl
[[ -r $metrics ]] || { echo "plot_loss.sh: cannot read $metrics" >&2; exit 2; }
command -v gnuplot >/dev/null || { echo "plot_loss.sh: gnuplot is missing; scripts/setup.sh installs it" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Columns: step, loss, learning rate, mean loss; and step, validation loss. A loss that is not finite
# is null: a gap in the curves, and not part of the means.
awk -v train="$work/train" -v valid="$work/valid" '
    function number(key,    at, rest) {
        at = index($0, "\"" key "\": ")
        if (at == 0) return "none"
        rest = substr($0, at + length(key) + 4)
        sub(/[,}].*/, "", rest)
        return rest == "null" ? "NaN" : rest
    }
    /^\{"step": / {
        if (number("loss") != "none") {
            n++
            step[n] = number("step"); loss[n] = number("loss"); rate[n] = number("lr")
            finite[n] = finite[n - 1] + (loss[n] != "NaN")
            sum[n] = sum[n - 1] + (loss[n] == "NaN" ? 0 : loss[n])
        }
        if (number("valid_loss") != "none") print number("step"), number("valid_loss") > valid
    }
    END {
        half = int(n / 100)
        for (i = 1; i <= n; i++) {
            side = half < i - 1 ? half : i - 1 # at the start, where the loss falls fast, few steps
            to = i + side < n ? i + side : n
            count = finite[to] - finite[i - side - 1]
            mean = loss[i] == "NaN" ? "NaN" : (sum[to] - sum[i - side - 1]) / count
            print step[i], loss[i], rate[i], mean > train
        }
    }' "$metrics"
[[ -s $work/train ]] || { echo "plot_loss.sh: $metrics holds no steps" >&2; exit 2; }

curves="'$work/train' using 1:4 with lines linewidth 2.5 linecolor rgb '#7b3294' title 'loss'"
if [[ -z $text ]] && (($(wc -l <"$work/train") >= 100)); then
    light="'$work/train' using 1:2 with lines linewidth 1 linecolor rgb '#d5c3dd' title 'loss of a step'"
    curves="$light, ${curves/\'loss\'/\'mean loss\'}"
fi
if [[ -s $work/valid ]]; then
    curves+=", '$work/valid' using 1:2 with linespoints linewidth 2 linecolor rgb '#008837' pointtype 7 title 'validation loss'"
fi

if [[ -n $text ]]; then
    gnuplot <<PLOT
set terminal dumb 90 22
set xlabel "step"
set ylabel "nats"
plot $curves
PLOT
else
    mkdir -p "$(dirname "$out")"
    gnuplot <<PLOT
set terminal pngcairo size 1000,600
set output "$work/plot.png"
set title "$run" noenhanced
set xlabel "optimizer step"
set ylabel "loss, nats per token"
set y2label "learning rate"
set ytics nomirror
set y2tics
set format y2 "%g"
set grid
plot $curves, '$work/train' using 1:3 axes x1y2 with lines dashtype 2 linecolor rgb "#999999" title 'learning rate'
PLOT
    mv "$work/plot.png" "$out"
fi
