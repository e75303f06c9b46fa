#!/usr/bin/env bash
# sync_every.sh: reducing gradients after every micro-batch, and after the last alone.
#
#   scripts/labs/sync_every.sh [--steps N] [--dir DIR] [--same] [key=value ...]
#
# A sum may be taken in any order: what the K micro-batches of a rank add up to can stay on the rank, and
# one reduction in the last of them tells everybody. A trainer that reduces whenever a gradient is ready,
# because nobody told it that the step goes on (`no_sync` forgotten), sends the gradient K times and waits
# K times. The loss is the same, so only who looks at bytes and time finds it. Here 16 sequences go
# through 2 and 8 micro-batches on 2 ranks, both ways. The weights that ZeRO gathers after the update
# are in the bytes, too, once a step.
#
# Leaves a folder a run, the plot and lab.yaml in DIR, runs/labs/sync_every unless said otherwise.
# shellcheck source=scripts/lib/labs.sh
source "$(dirname "$0")/../lib/labs.sh"
lab_begin debug 20 "$@"

always ranks=2 model.channels=256 model.context=8 batch.sequences=16
for K in 2 8; do
    way last-$K batch.accumulate=$K
    way every-$K fault=sync_every batch.accumulate=$K
done

mbytes() { compute "$(mean "$1" comm_bytes 1) / 1e6"; }
printf '%-8s %14s %14s %18s %24s %10s\n' reduced micro-batches 'calls a step' 'MB a step and rank' \
    'ms of communication' 'end loss'
for name in last-2 every-2 last-8 every-8; do
    printf '%-8s %14d %14g %18.2f %24.1f %10.4f\n' ${name%-*} ${name#*-} "$(mean $name comm_calls 1)" \
        "$(mbytes $name)" "$(median $name comm_ms)" "$(mean $name loss)"
done
plot --against comm_bytes last-2 every-2 last-8 every-8
claim "reduced in the last, bytes do not depend on micro-batches" "$(mbytes last-8) == $(mbytes last-2)"
claim "reduced in every one, 6 more send 6 more gradients" \
    "$(mbytes every-8) - $(mbytes every-2) > 5.99 * ($(mbytes every-2) - $(mbytes last-2)) && $(mbytes every-2) > $(mbytes last-2)"
claim "and take longer" "$(median every-8 comm_ms) > 1.5 * $(median last-8 comm_ms)"
claim "the loss is the same" "$(mean every-8 loss) < 1.01 * $(mean last-8 loss) && $(mean every-8 loss) > 0.99 * $(mean last-8 loss)"
lab_end "One reduction a step is enough; one a micro-batch sends the gradient so many times, for the same loss."
