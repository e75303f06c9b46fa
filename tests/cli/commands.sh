#!/usr/bin/env bash
# Every command as a user runs it: what it prints, that its numbers agree with those of the others,
# and its exit code.
# shellcheck disable=SC2016 # the dollars are awk's
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
prepare

# --- a result that cannot be printed ---
for command in version "plan $work/tiny.yaml" "data info $work/tokens.h5"; do
    code=0
    # shellcheck disable=SC2086 # words
    timeout "$limit" "$tutti" $command >/dev/full 2>"$work/err" || code=$?
    refused "${command%% *}: full output" 1 "standard output"
done

# --- help ---
alone --help
said "help" '^  train '
for command in train plan data eval generate checkpoint bench; do
    alone $command --help
    said "$command --help" "usage: tutti $command"
    equal "$command --help: nothing on stderr" "" "$(<"$work/err")"
done
run 3 train --help
equal "help is printed once" 1 "$(grep -c '^usage:' "$work/out")"

# --- version, formats, options ---
alone version
said "version" "^tutti $(sed -n 's/^#define TUTTI_VERSION "\(.*\)"/\1/p' include/tutti/version.h) "
for what in ISA MPI HDF5 BLAS; do
    said "version: $what" "^$what  *[A-Za-z0-9]"
done
alone --version
said "--version" '^tutti '
TUTTI_ISA=ref alone version
said "version: the chosen ISA" '^ISA   ref;'
alone formats
said "formats" '^bf16 *16 *8 *7 '
alone formats 1 -0.1 65519
said "formats of numbers" '^-0.1 .* -0.10009766 '
alone formats inf -inf nan 61440 464 464.1 -1e-9 1e-6
said "formats: infinity" '^inf  *inf  *inf  *inf  *inf  *448  *inf  *57344$'
said "formats: NaN" '^nan  *nan  *nan  *nan  *nan  *nan  *nan  *nan$'
said "formats: overflow and saturation" '^61440  *61440  *61440  *61440  *61440  *448^  *inf^  *57344^$'
said "formats: rounded to the largest is not overflow" '^464 .* 448   *448   *448$'
said "formats: beyond it" '^464.1 .* 448^  *448   *448$'
said "formats: underflow" '^-1e-9 .* -0_  *-0_  *-0_  *-0_$'
said "formats: subnormal" '^1e-6 .* 1.013279e-06~ '
said "formats: what the marks mean" '^\^  beyond the largest'
alone formats 65519.99999999999 1e39 1e-50
said "formats: overflow on the way through FP32" '^65519.99999999999  *65520  *65536  *65536  *inf^ '
said "formats: beyond FP32" '^1e39  *inf^  *inf^  *inf^  *inf^  *448^  *inf^  *57344^$'
said "formats: below FP32" '^1e-50  *0_ '
alone formats -1 -- -0 1
said "formats: -- ends options" '^-0  *-0  *-0 '
said "formats: what stands before it counts" '^-1  *-1 '
alone formats --
said "formats --: the table" '^bf16 *16 *8 *7 '
alone options
said "options" '  optim.lr '

# --- data ---
alone data info "$work/tokens.h5"
said "data info" '^tokenizer *bytes, vocabulary 257'
held=$(awk '/^held out/ { print $5 }' "$work/out")

# --- plan ---
alone plan "$work/tiny.yaml" --ranks 4
said "plan: batch" 'sequences 12 = micro 1 x accumulate 3 x ranks 4; 192 tokens a step'
said "plan: memory" '^  total  *[0-9.]* [KM]iB'
said "plan: formats" '^  qkv  *fp32  *fp32  *fp32 '
said "plan: wire" '^  collectives  *5$'
alone plan "$work/tiny.yaml" precision.compute=fp8 fp8.recipe=delayed fp8.history=7 precision.loss_scale=dynamic
said "plan: FP8's scales" '^  fp8  *delayed, of 7 steps, margin 0; gradients bf16'
said "plan: the loss scale" '^  loss  *dynamic, from 65536, within 1 and 16777216'
said "plan: the table of formats" '^  qkv  *fp8_e4m3  *fp8_e4m3  *fp32  *bf16 '
alone plan "$work/tiny.yaml" model.vocab=50304 model.channels=768 model.layers=12 model.heads=12 \
    model.context=1024 data.train= --ranks 2
said "plan: parameters of GPT-2 small, without a token file" '124475904 parameters'

# --- train: what it writes ---
trained "train" 2 run run.eval_every=3 run.eval_sequences=8 run.trace_data=true \
    "run.dump_gradients=$work/grads.h5" run.save_every=2 run.keep=2
equal "keep: the newest two" "step-00000004.h5 step-00000006.h5" \
    "$(cd "$work/run" && find . -name '*.h5' -printf '%f\n' | sort | paste -sd ' ')"
json "metrics are JSON" "$work/run/metrics.jsonl"
missing=
for key in loss tokens tokens_seen lr grad_norm clipped loss_scale skipped nonfinite step_ms \
    tokens_per_s mfu comm_ms comm_exposed_ms imbalance_ms comm_calls comm_bytes rss_mb time; do
    [[ $(metric run $key | wc -l) -ge 6 ]] || missing+=" $key"
done
equal "metrics have every field in every step" "" "$missing"
equal "evaluations" "3 6" "$(metric run valid_tokens | cut -d ' ' -f 1 | paste -sd ' ')"
equal "evaluated tokens" "128 128" "$(metric run valid_tokens | cut -d ' ' -f 2 | paste -sd ' ')"
missing=
for key in version config ranks threads isa parameters plan; do
    head -n 1 "$work/run/metrics.jsonl" | grep -q "^{\"run\": {.*\"$key\": " || missing+=" $key"
done
equal "the first line describes the run" "" "$missing"
equal "tokens add up" $((6 * 192)) "$(metric run tokens_seen | tail -n 1 | cut -d ' ' -f 2)"
check "the loss falls" awk 'NR == 1 { first = $2 } { last = $2 } END { exit !(last < first) }' <(metric run loss)
check "bytes begin near ln 257" awk 'NR == 1 { exit !($2 > 5.4 && $2 < 5.8) }' <(metric run loss)
json "data.jsonl is JSON" "$work/run/data.jsonl"
equal "data.jsonl: every sample once and in order" "$(seq 0 71 | paste -sd ' ')" \
    "$(sed 's/.*"samples": \[\([^]]*\)\].*/\1/; s/,//g' "$work/run/data.jsonl" | paste -sd ' ')"
equal "data.jsonl: no window twice in an epoch" 72 \
    "$(sed 's/.*"elements": \[\([^]]*\)\].*/\1/; s/, /\n/g' "$work/run/data.jsonl" | sort -u | wc -l)"

# Gradients: the mean of the step, whatever the split.
alone checkpoint info "$work/grads.h5"
said "gradient dump" '^grads/h.1.mlp.fc.weight *\[64,16\] '
train 3 other run.trace_data=true "run.dump_gradients=$work/grads-3.h5"
equal "data.jsonl: the same on three ranks" "$(<"$work/run/data.jsonl")" "$(<"$work/other/data.jsonl")"
alone checkpoint diff "$work/grads.h5" "$work/grads-3.h5"
check "gradient dump: the same on three ranks" awk '/^identical/ { ok = 1 } $1 == "grads" { ok = $4 < 1e-5 }
    END { exit !ok }' "$work/out"

# --- checkpoint ---
saved=$(checkpoint run 6)
alone checkpoint info "$saved"
said "checkpoint info: step" '^state/step *6$'
said "checkpoint info: a tensor" '^params/wpe '
alone checkpoint verify "$saved"
said "checkpoint verify" '^OK .*match their digests'
alone checkpoint diff "$saved" "$saved"
said "checkpoint diff: the same" '^identical'
alone checkpoint diff "$saved" "$(checkpoint run 4)"
equal "checkpoint diff: others exit with 1" 1 "$code"
check "checkpoint diff: a row a group" test "$(grep -c '^params \|^adam_m \|^adam_v \|^state ' "$work/out")" = 4
if command -v h5dump >/dev/null; then
    check "the second moments are squares" test -z "$(h5dump -d /adam_v/h.0.mlp.fc.weight "$saved" | grep -- ' -[0-9]')"
    check "and the first are not" test -n "$(h5dump -d /adam_m/h.0.mlp.fc.weight "$saved" | grep -- ' -[0-9]')"
    check "h5dump reads it" grep -q 'DATASPACE  SIMPLE { ( 257, 16 )' <(h5dump -H -d /params/wte "$saved")
fi

# --- eval ---
last=$(metric run valid_loss | tail -n 1 | cut -d ' ' -f 2)
alone eval "$saved" --json run.eval_sequences=8
close_value "eval is the run's last evaluation" 1e-6 "$last" "$(field valid_loss)"
for ranks in 1 2 3; do
    run $ranks eval "$saved" --json
    equal "eval on $ranks ranks reads all that is held out" $(((held - 1) / 16 * 16)) "$(field valid_tokens)"
    ((ranks == 1)) && first=$(field valid_loss)
    close_value "eval on $ranks ranks" 1e-7 "$first" "$(field valid_loss)"
done
alone eval "$saved" --data "$work/short.h5"
said "eval of other data" 'nats per token'

# --- generate ---
alone generate "$saved" --prompt 'int ' --tokens 40 --temperature 0
cp "$work/out" "$work/greedy"
check "generate starts with the prompt" grep -q '^int ' "$work/greedy"
TUTTI_ISA=ref alone generate "$saved" --prompt 'int ' --tokens 40 --temperature 0 --seed 7
check "greedy is the same with any seed and ISA" cmp -s "$work/out" "$work/greedy"
sample=0
for seed in 1 1 2; do
    alone generate "$saved" --prompt 'int ' --tokens 40 --temperature 1 --seed $seed
    mv "$work/out" "$work/sample-$((++sample))"
done
check "the same seed gives the same text" cmp -s "$work/sample-1" "$work/sample-2"
cmp -s "$work/sample-1" "$work/sample-3"
verdict "another seed gives another" $(($? != 1)) "the same text"
alone generate "$saved" --prompt 'int ' --tokens 40 --top-k 1
check "the likeliest of one is greedy" cmp -s "$work/out" "$work/greedy"
