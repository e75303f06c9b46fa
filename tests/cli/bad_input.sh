#!/usr/bin/env bash
# What a user or the world gets wrong is told in one sentence that names it, with the right exit code,
# whatever the number of ranks; and nothing that was there is touched.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
prepare

# no NAME CODE WORDS KEY=VALUE...: a run on 2 ranks is refused.
no() {
    local name=$1 wanted=$2 words=$3
    shift 3
    train 2 none "$@"
    refused "$name" "$wanted" "$words"
}

# yaml NAME CODE WORDS TEXT: so is a configuration with this text.
yaml() {
    printf '%s\n' "$4" >"$work/bad.yaml"
    run 2 train "$work/bad.yaml" "run.dir=$work/none"
    refused "$1" "$2" "$3"
}

# says NAME CODE WORDS ARGUMENT...: so is a command without ranks.
says() {
    local name=$1 wanted=$2 words=$3
    shift 3
    alone "$@"
    refused "$name" "$wanted" "$words"
}

# --- configuration ---
says "unknown command" 2 "did you mean 'train'" trian
says "no configuration" 2 "needs a configuration file" train
says "unknown flag" 2 "--rank" train "$work/tiny.yaml" --rank 2
says "missing configuration" 2 "$work/absent.yaml" train "$work/absent.yaml"
says "folder as configuration" 2 "$work/text" train "$work/text"
says "binary file as configuration" 2 "$work/tokens.h5" train "$work/tokens.h5"
no "unknown key" 2 "did you mean model.layers" model.layer=2
no "key without a section" 2 "layers=2" layers=2
no "wrong type" 2 "model.layers" model.layers=two
no "neither word nor number" 2 "none or dynamic, or a number" precision.loss_scale=auto
no "loss scale that starts above its cap" 2 "scaler.start: 65536 is above scaler.cap (8)" scaler.cap=8
no "another trainer's name" 2 "did you mean scaler.start" precision.init_scale=8
no "out of range" 2 "model.dropout" model.dropout=1.5
no "negative size" 2 "model.channels" model.channels=-16
no "unknown choice" 2 "constant, cosine, linear or wsd" optim.schedule=cosin
no "format that nothing computes in" 2 "bf16, fp32, tf32, fp16 or fp8" precision.compute=fp64
no "ZeRO 4" 2 "memory.zero" memory.zero=4
no "heads that do not divide channels" 2 "model.heads" model.heads=3
yaml "duplicate key" 2 "bad.yaml:3" $'run:\n  steps: 1\n  steps: 2'
yaml "unknown key in a file" 2 "bad.yaml:2" $'model:\n  chanels: 3'
yaml "broken YAML" 2 "bad.yaml" $'model: {layers: 2\nrun: ]'
yaml "required key" 2 "data.train" $'run: {steps: 2}'

# --- batch and data ---
no "impossible batch" 2 "nearest" batch.micro=5
no "missing token file" 2 "$work/absent.h5" data.train="$work/absent.h5"
no "text as a token file" 2 "$work/short.txt" data.train="$work/short.txt"
no "folder as a token file" 2 "$work/text" data.train="$work/text"
head -c $(($(stat -c %s "$work/tokens.h5") - 500)) "$work/tokens.h5" >"$work/cut.h5"
no "truncated token file" 1 "$work/cut.h5" data.train="$work/cut.h5"
no "vocabulary too small" 2 "model.vocab" model.vocab=100
no "file shorter than a sequence" 2 "$work/short.h5" data.train="$work/short.h5" model.context=2048

# --- the run's folder and environment ---
train 2 none "run.dir=$work/short.txt/run"
refused "folder that cannot be made" 1 "$work/short.txt"
TUTTI_ISA=sse9 train 2 none
refused "unknown TUTTI_ISA" 2 "sse9"
TUTTI_FAULT=nan_gard:rank=0 train 2 none
refused "unknown TUTTI_FAULT" 2 "nan_gard"
no "nothing to continue" 2 "run.resume" run.resume=must
sed 's/lr: 3e-3/lr: 4e-3/' "$work/tiny.yaml" >"$work/other.yaml"
code=0
scripts/run.sh -n 1 -t $limit "$tutti" train "$work/tiny.yaml" "run.dir=$work/none" : \
    -n 2 "$tutti" train "$work/other.yaml" "run.dir=$work/none" >"$work/out" 2>"$work/err" || code=$?
refused "other configuration on one rank" 2 "optim.lr"
code=0
scripts/run.sh -n 1 -t $limit "$tutti" train "$work/tiny.yaml" "run.dir=$work/none" : \
    -n 1 env TUTTI_ISA=guard "$tutti" train "$work/tiny.yaml" "run.dir=$work/none" >"$work/out" 2>"$work/err" || code=$?
refused "other kernels on one rank" 2 "isa"
check "a refused run leaves no checkpoint and no metrics" test -z "$(find "$work/none" -type f ! -name lock 2>/dev/null)"

# --- an earlier run's files ---
trained "run to continue from" 2 good run.steps=2
before=$(tree "$work/good")
saved=$(checkpoint good 2)
train 3 good run.steps=4 model.channels=32
refused "other model" 2 "model.channels"
train 3 good run.steps=4 optim.lr=1e-2
refused "other learning rate" 2 "optim.lr"
train 1 good run.steps=4 "data.train=$work/documents.h5"
refused "other data" 2 "$work/documents.h5"
train 2 none model.channels=32 "run.init_from=$saved"
refused "initial weights of another model" 2 "$saved"
train 2 none "run.init_from=$work/absent.h5"
refused "initial weights that are not there" 2 "$work/absent.h5"
train 2 none "run.init_from=$work/documents.h5"
refused "initial weights of a token file" 2 "$work/documents.h5"
equal "files of the earlier run are untouched" "$before" "$(tree "$work/good")"

# A byte of a tensor is turned over; the reader of digests finds it.
offset=9000 # the first tensor, wte, takes 16448 bytes from near the beginning on
cp "$saved" "$work/bad.h5"
printf '\125' | dd of="$work/bad.h5" bs=1 seek=$((offset + 101)) conv=notrunc status=none
train 2 none "run.init_from=$work/bad.h5"
refused "damaged initial weights" 1 "$work/bad.h5"
says "damaged checkpoint" 1 "damaged" checkpoint verify "$work/bad.h5"
mkdir "$work/damaged"
cp "$work/bad.h5" "$work/damaged/step-00000002.h5"
train 2 damaged run.resume=must
refused "continuing from a damaged checkpoint" 1 "step-00000002.h5 is damaged: params/wte"
equal "and nothing is begun beside it" "lock step-00000002.h5" "$(cd "$work/damaged" && echo *)"
train 2 damaged
refused "nor in place of it" 1 "no other checkpoint"
# A file that is cut short, as by a crash of the machine, is passed over for the one before.
cp "$saved" "$work/damaged/step-00000002.h5"
head -c 20000 "$saved" >"$work/damaged/step-00000003.h5"
train 2 damaged run.resume=must run.steps=3
check "a checkpoint cut short is passed over by name" grep -q 'step-00000003.h5' "$work/err"
check "for the one before" grep -q 'continuing from .*step-00000002.h5' "$work/err"
# So is a file whose digests do not match.
cp "$work/bad.h5" "$work/damaged/step-00000003.h5"
train 2 damaged run.resume=must run.steps=3
check "a checkpoint with a flipped bit is passed over by name" grep -q 'step-00000003.h5 is damaged: params/wte' "$work/err"
check "for the one before too" grep -q 'continuing from .*step-00000002.h5' "$work/err"

# --- what a run writes replaces nothing else ---
sum=$(sha256sum "$work/tokens.h5")
no "gradient dump over a token file" 2 "holds something other than grads" run.dump_gradients="$work/tokens.h5"
equal "which stays as it was" "$sum" "$(sha256sum "$work/tokens.h5")"
# The folder is there, and holds no run.
for name in step-00000001.h5 metrics.jsonl data.jsonl; do
    no "gradient dump in the place of $name" 2 "is the name of a file of the run itself" run.dir="$work/own" \
        run.dump_gradients="$work/own/$name"
done
no "gradient dump into no folder" 1 "$work/nowhere" run.dump_gradients="$work/nowhere/g.h5"
for _ in 1 2 3; do train 1 aside run.resume=never run.steps=1; done
equal "three fresh starts in a row keep the earlier two" 3 "$(find "$work/aside" -name 'step-*.h5' | wc -l)"

# --- the other commands ---
says "token file of nothing" 2 "absent" data build --out "$work/new.h5" "$work/absent"
check "no output of a failed build" test ! -e "$work/new.h5"
sum=$(sha256sum "$work/tokens.h5")
says "failed build over a token file" 2 "absent" data build --out "$work/tokens.h5" "$work/text" "$work/absent"
equal "which stays as it was" "$sum" "$(sha256sum "$work/tokens.h5")"
says "token file over a text" 2 "$work/short.txt" data build --out "$work/short.txt" "$work/text"
# --- a loss that is not finite is no result ---
trained "training that goes astray" 1 astray optim.lr=3e4 optim.warmup=0 run.steps=3
astray=$(checkpoint astray 3)
for json in "" --json; do
    # shellcheck disable=SC2086 # a word or none
    alone eval "$astray" $json precision.compute=fp16 run.eval_sequences=4
    refused "eval $json of a loss that is not finite" 1 "is not finite, computed in fp16"
    equal "and prints nothing" "" "$(<"$work/out")"
done
train 2 forward "run.init_from=$astray" precision.compute=fp16 precision.loss_scale=dynamic optim.max_skips=1
failed "training from there" 1 "the last because the loss is not finite; it is so in forward"
check "each step says so" grep -q 'step 1 is skipped: the loss is not finite; the loss scale goes' "$work/err"
train 2 unscaled precision.compute=fp16 precision.loss_scale=0.5 run.steps=1
check "FP16 with a scale that makes nothing larger is warned of" grep -q \
    'precision.loss_scale 0.5: gradients of the mean loss below 6e-08 become 0' "$work/err"

says "eval of nothing" 2 "needs a checkpoint" eval
says "eval of a missing file" 2 "$work/absent.h5" eval "$work/absent.h5"
says "eval of a token file" 2 "$work/tokens.h5" eval "$work/tokens.h5"
says "eval on missing data" 2 "$work/absent.h5" eval "$saved" --data "$work/absent.h5"
run 3 eval "$saved" --data "$work/short.txt"
refused "eval on a text, three ranks" 2 "$work/short.txt"
says "generate without a prompt" 2 "--prompt" generate "$saved"
says "generate from a text" 2 "$work/short.txt" generate "$work/short.txt" --prompt a
says "generate with a wrong number" 2 "--tokens" generate "$saved" --prompt a --tokens x
says "checkpoint info of a text" 2 "$work/short.txt" checkpoint info "$work/short.txt"
says "checkpoint diff of one" 2 "diff A B" checkpoint diff "$saved"
says "unknown bench" 2 "nothing" bench nothing
says "wrong key of a bench" 2 "layer" bench step model.layer=2
says "plan without ranks" 2 "--ranks" plan "$work/tiny.yaml" --ranks 0
says "unknown flag of options" 2 "--html" options --html
says "not a number" 2 "'x' is not a number" formats x
says "a number that is too large to read" 2 "'1e400' is beyond FP64" formats 1e400
says "a number that is too small to read" 2 "'1e-5000' is beyond FP64" formats 1e-5000
says "unknown flag of formats" 2 "'--all' is not a number" formats --all
equal "files of the earlier run are untouched still" "$before" "$(tree "$work/good")"
