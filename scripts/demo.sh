#!/usr/bin/env bash
# demo.sh: the whole way in a few minutes: sources to tokens, tokens to a model, a model to text.
#
#   scripts/demo.sh [key=value ...]       keys override configs/demo.yaml
#
# Writes only below demo/ and starts anew each time. TUTTI_BIN is the program.
set -euo pipefail
cd "$(dirname "$0")/.."
tutti=${TUTTI_BIN:-build/release/tutti}
run=demo/run
# shellcheck source=scripts/lib/corpus.sh
source scripts/lib/corpus.sh
[[ -x $tutti ]] || { echo "demo.sh: $tutti is not there; run make demo" >&2; exit 2; }

heading() { printf '\n== %s\n' "$*"; }

rm -rf "$run"
mkdir -p demo

heading "The corpus: this project's own sources and documentation, a document each, a tenth held out"
mapfile -t texts < <(project_text)
"$tutti" data build --out demo/tokens.h5 --valid 0.1 "${texts[@]}" | tee demo/info.txt

heading "Training on 2 ranks: configs/demo.yaml"
scripts/run.sh -n 2 -t 900 "$tutti" train configs/demo.yaml "run.dir=$run" "$@"

heading "The loss"
scripts/plot_loss.sh "$run" demo/loss.png
scripts/plot_loss.sh --text "$run"

heading "A sample"
checkpoint=$(find "$run" -name 'step-*.h5' | LC_ALL=C sort | tail -n 1)
OMP_NUM_THREADS=1 "$tutti" generate "$checkpoint" --prompt 'static int ' --tokens 300 --temperature 0.5 --seed 1 | tee demo/sample.txt

heading "What was learned"
entropy=$(sed -n 's/.*entropy[^0-9]*\([0-9][0-9.]*\).*/\1/p' demo/info.txt | head -n 1)
valid=$(sed -n 's/.*"valid_loss": \([0-9.]*\).*/\1/p' "$run/metrics.jsonl" | tail -n 1)
awk -v entropy="$entropy" -v valid="$valid" 'BEGIN {
    if (entropy !~ /^[0-9]/ || valid !~ /^[0-9]/) { print "demo.sh: no entropy or no validation loss"; exit 1 }
    printf "order-0 entropy of the corpus   %.3f nats per byte (the best that counting bytes can do)\n", entropy
    printf "validation loss of the model    %.3f nats per byte, on documents it never saw\n", valid
    if (valid > 0.9 * entropy) { print "verdict: NOT clearly below; something is wrong"; exit 1 }
    printf "verdict: it has learned, %.0f %% below\n", 100 * (1 - valid / entropy)
}'

heading "Files"
stat -c '%9s bytes  %n' demo/tokens.h5 "$checkpoint" "$run/metrics.jsonl" demo/loss.png demo/sample.txt
