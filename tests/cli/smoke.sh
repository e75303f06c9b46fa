#!/usr/bin/env bash
# quick: yes
# The whole way once: tokens, training on two ranks, stopping, continuing on another number, the loss,
# a sample, a refusal. The other scripts look closer; this one is for every change.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
prepare

trained "four steps on two ranks" 2 run run.steps=4 model.dropout=0.1 run.eval_every=2
trained "two more on three" 3 run run.steps=6 model.dropout=0.1 run.eval_every=2
trained "six in one go on one" 1 whole run.steps=6 model.dropout=0.1 batch.micro=4
close_metric "losses are the same" 1e-6 loss whole run
close_state "weights are the same" 1e-5 "$(checkpoint whole 6)" "$(checkpoint run 6)"
trained "BF16" 2 bf16 precision.compute=bf16
# shellcheck disable=SC2016 # the dollars are awk's
check "which learns" awk 'NR == 1 { first = $2 } { last = $2 } END { exit !(last < first) }' <(metric bf16 loss)
run 2 eval "$(checkpoint run 6)" run.eval_sequences=64
close_value "eval is the run's last evaluation" 1e-6 \
    "$(metric run valid_loss | tail -n 1 | cut -d ' ' -f 2)" "$(awk '$1 == "loss" { print $2 }' "$work/out")"
alone generate "$(checkpoint run 6)" --prompt 'int ' --tokens 5
check "a sample" grep -q '^int ' "$work/out"
train 2 run model.layers=3
refused "another model" 2 "model.layers"
train 2 none optim.lr=-1
refused "a wrong value" 2 "optim.lr"
alone checkpoint verify "$(checkpoint run 6)"
check "the checkpoint is whole" test "$code" = 0
