#!/usr/bin/env bash
# plot_loss.sh: draws loss, validation loss and learning rate of a run with gnuplot. In runs of 100
# steps or more, the loss of each step is light, and its mean over the steps around (1% of
# the run to both sides) is bold.
#
#   scripts/plot_loss.sh RUN_DIR OUT.png
#   scripts/plot_loss.sh --text RUN_DIR       on the terminal instead
#   scripts/plot_loss.sh [--key KEY] [--against KEY] RUN_DIR RUN_DIR... OUT.png
#
# Of several runs, the mean loss of each in one picture, named as its folder. --key draws another number
# of the metrics in the loss's place (grad_norm, step_ms), --against puts the sum of one so far in the
# place of the steps (comm_bytes, step_ms).
#
# Reads RUN_DIR/metrics.jsonl.
set -euo pipefail

usage() { sed -n '2,/^set -/s/^# \{0,1\}//p' "$0"; }

text='' key='' against=''
while [[ ${1:-} == -* ]]; do
    case $1 in
    --help | -h)
        usage
        exit 0
        ;;
    --text) text=1 ;;
    --key | --against)
        [[ ${2:-} =~ ^[a-z_]+$ ]] || { usage >&2; exit 2; }
        [[ $1 == --key ]] && key=$2 || against=$2
        shift
        ;;
    *)
        usage >&2
        exit 2
        ;;
    esac
    shift
done
if (($# < (text ? 1 : 2))) || { [[ -n $text ]] && (($# > 1)); } || { [[ -n $key$against ]] && (($# < 3)); }; then
    usage >&2
    exit 2
fi
if [[ -n $text ]]; then
    runs=("$1") out=
else
    runs=("${@:1:$#-1}") out=${*: -1}
fi
key=${key:-loss}
command -v gnuplot >/dev/null || { echo "plot_loss.sh: gnuplot is missing; scripts/setup.sh installs it" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# columns RUN NAME: into $work/NAME.train step (or the sum so far), loss, learning rate, mean loss; into
# $work/NAME.valid step, validation loss. A loss that is not finite is null: a gap in the curves, and
# not part of the means.
columns() {
    local metrics=$1/metrics.jsonl
    [[ -r $metrics ]] || { echo "plot_loss.sh: cannot read $metrics" >&2; exit 2; }
    awk -v key="$key" -v against="$against" -v train="$work/$2.train" -v valid="$work/$2.valid" '
        function number(key,    at, rest) {
            at = index($0, "\"" key "\": ")
            if (at == 0) return "none"
            rest = substr($0, at + length(key) + 4)
            sub(/[,}].*/, "", rest)
            return rest == "null" ? "NaN" : rest
        }
        /^\{"step": / {
            if (number(key) != "none") {
                n++
                if (against != "" && number(against) != "none") so_far += number(against)
                step[n] = against == "" ? number("step") : so_far
                loss[n] = number(key); rate[n] = number("lr")
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
    [[ -s $work/$2.train ]] || { echo "plot_loss.sh: $metrics holds no steps${key:+ with a $key}" >&2; exit 2; }
}

# The columns of all runs; then the curves.
for i in "${!runs[@]}"; do
    columns "${runs[i]}" "$i"
done
title=${runs[0]}
xlabel='optimizer step'
ylabel='loss, nats per token'
second='' # the axis on the right
if ((${#runs[@]} > 1)); then
    title=$(basename "$(dirname "${runs[0]}")")
    [[ $key == loss ]] || ylabel=$key
    [[ -z $against ]] || xlabel="sum of $against"
    # The first is broad: what is drawn over it does not hide it. Colours that most eyes tell apart.
    colours=('#0072b2' '#d55e00' '#009e73' '#cc79a7' '#e69f00' '#56b4e9')
    curves=
    for i in "${!runs[@]}"; do
        curves+="${curves:+, }'$work/$i.train' using 1:4 with lines linewidth $((i == 0 ? 5 : 2)) dashtype $((1 + i / 6))"
        curves+=" linecolor rgb '${colours[i % 6]}' title '$(basename "${runs[i]}")' noenhanced"
    done
else
    curves="'$work/0.train' using 1:4 with lines linewidth 2.5 linecolor rgb '#7b3294' title 'loss'"
    if [[ -z $text ]] && (($(wc -l <"$work/0.train") >= 100)); then
        light="'$work/0.train' using 1:2 with lines linewidth 1 linecolor rgb '#d5c3dd' title 'loss of a step'"
        curves="$light, ${curves/\'loss\'/\'mean loss\'}"
    fi
    if [[ -s $work/0.valid ]]; then
        curves+=", '$work/0.valid' using 1:2 with linespoints linewidth 2 linecolor rgb '#008837' pointtype 7 title 'validation loss'"
    fi
    if [[ -z $text ]]; then
        curves+=", '$work/0.train' using 1:3 axes x1y2 with lines dashtype 2 linecolor rgb '#999999' title 'learning rate'"
        second='set y2label "learning rate"; set ytics nomirror; set y2tics'
    fi
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
set title "$title" noenhanced
set xlabel "$xlabel" noenhanced
set ylabel "$ylabel" noenhanced
$second
set format y2 "%g"
set grid
plot $curves
PLOT
    mv "$work/plot.png" "$out"
fi
