#!/usr/bin/env bash
# How the batch is split over ranks, micro-batches, ZeRO stages and threads does not matter: the same
# losses, norms and weights within rounding; and files know nothing of ranks.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
prepare

# same NAME REFERENCE RUN [BOUND]: losses, norms, token counts and final weights agree.
same() {
    local bound=${4:-1e-6}
    close_metric "$1: losses" "$bound" loss "$2" "$3"
    close_metric "$1: norms" "$(awk -v b="$bound" 'BEGIN { print 20 * b }')" grad_norm "$2" "$3"
    equal "$1: targets" "$(metric "$2" tokens)" "$(metric "$3" tokens)"
    close_state "$1: weights" "$(awk -v b="$bound" 'BEGIN { print 10 * b }')" \
        "$(checkpoint "$2" 6)" "$(checkpoint "$3" 6)"
}

# 24 sequences a step: documents of many lengths, so that micro-batches hold different numbers of
# targets, and dropout, whose masks must follow the sample.
documents=("data.train=$work/documents.h5" data.mode=documents batch.sequences=24 model.dropout=0.1)
trained "reference" 1 one "${documents[@]}" batch.micro=24
check "micro-batches are uneven" test "$(metric one tokens | cut -d ' ' -f 2 | sort -u | wc -l)" -gt 1
# ranks, micro, zero, threads
for split in 1:1:0:2 2:12:1:1 2:3:0:2 3:1:1:1 3:8:0:1 4:6:1:1 4:1:0:1; do
    IFS=: read -r ranks micro zero threads <<<"$split"
    name="$ranks ranks, micro-batch $micro, ZeRO $zero"
    trained "$name" "$ranks" "split-$split" "${documents[@]}" batch.micro="$micro" memory.zero="$zero" \
        run.threads="$threads"
    same "$name" one "split-$split"
done

trained "BF16 reference" 1 bf16-1 "${documents[@]}" batch.micro=24 precision.compute=bf16
trained "BF16 on 3 ranks" 3 bf16-3 "${documents[@]}" batch.micro=2 precision.compute=bf16
same "BF16 on 3 ranks" bf16-1 bf16-3 1e-3

# The other formats learn what FP32 does, as near as they are fine, on one rank and on two.
for near in tf32:1e-3:1e-4 fp16:1e-2:1e-3; do
    IFS=: read -r compute coarse split <<<"$near"
    trained "$compute reference" 1 "$compute-1" "${documents[@]}" batch.micro=24 "precision.compute=$compute"
    close_metric "$compute: losses near FP32's" "$coarse" loss one "$compute-1"
    differs=0
    [[ $(metric one loss) != "$(metric "$compute-1" loss)" ]] || differs=1
    verdict "$compute: but not FP32's" $differs "the same losses to the last digit"
    trained "$compute on 2 ranks" 2 "$compute-2" "${documents[@]}" batch.micro=3 "precision.compute=$compute"
    same "$compute on 2 ranks" "$compute-1" "$compute-2" "$split"
    TUTTI_ISA=guard trained "watched $compute kernels" 2 "$compute-guard" "${documents[@]}" batch.micro=3 \
        "precision.compute=$compute"
    same_state "watched $compute kernels are the same to the bit" "$(checkpoint "$compute-2" 6)" \
        "$(checkpoint "$compute-guard" 6)"
done

# The same ranks with and without ZeRO add the same numbers in the same order.
trained "ZeRO 1" 4 zero-1 "${documents[@]}" memory.zero=1
trained "ZeRO 0" 4 zero-0 "${documents[@]}" memory.zero=0
same_state "ZeRO 0 and 1 are the same to the bit" "$(checkpoint zero-0 6)" "$(checkpoint zero-1 6)"

# The same run twice is the same to the bit: nothing depends on time, addresses or which thread was first.
# Neither does it matter whether packed weights are kept.
for compute in fp32 bf16 tf32 fp16; do
    twice=("${documents[@]}" batch.micro=6 run.threads=2 run.steps=2 "precision.compute=$compute")
    trained "first run, $compute" 2 "once-$compute" "${twice[@]}"
    trained "second run, $compute" 2 "twice-$compute" "${twice[@]}"
    same_state "two runs are the same to the bit, $compute" "$(checkpoint once-$compute 2)" \
        "$(checkpoint twice-$compute 2)"
    trained "no packed weights, $compute" 2 "bare-$compute" "${twice[@]}" memory.pack_weights=false
    same_state "packed weights or not, $compute" "$(checkpoint once-$compute 2)" \
        "$(checkpoint bare-$compute 2)"
done

# Fewer pieces of 64 elements than ranks: some ranks own nothing.
narrow=(model.channels=2 model.heads=1 model.layers=1 model.ffn=1 model.vocab=257 model.context=4)
trained "narrow model" 1 narrow-1 "${narrow[@]}"
trained "narrow model, 12 ranks" 12 narrow-12 "${narrow[@]}"
same "narrow model, 12 ranks" narrow-1 narrow-12

# Watched kernels compute the same; the reference sums in another order.
TUTTI_ISA=guard trained "watched kernels" 4 guard "${documents[@]}"
same_state "watched kernels are the same to the bit" "$(checkpoint zero-1 6)" "$(checkpoint guard 6)"
TUTTI_ISA=ref trained "reference kernels" 2 ref "${documents[@]}"
same "reference kernels" one ref 1e-5

# So does every instruction set that this processor has, in BF16, where each has kernels of its own.
can=$("$tutti" version | sed -n 's/^ISA .*can do: //p')
check "the instruction sets of this processor are told" test -n "$can"
for isa in $can; do
    TUTTI_ISA=$isa trained "BF16 on $isa" 2 "bf16-$isa" "${documents[@]}" precision.compute=bf16
    same "BF16 on $isa" bf16-1 "bf16-$isa" 1e-3
done
TUTTI_ISA=guard trained "watched BF16 kernels" 2 bf16-guard "${documents[@]}" precision.compute=bf16
best=${can##* }
same_state "watched BF16 kernels are the same to the bit" "$(checkpoint "bf16-$best" 6)" \
    "$(checkpoint bf16-guard 6)"

# One bucket or several.
trained "one bucket" 2 bucket-25 model.channels=128 model.layers=4
trained "buckets of 1 MB" 2 bucket-1 model.channels=128 model.layers=4 dist.bucket_mb=1
same "buckets" bucket-25 bucket-1

# What four ranks saved, any number loads: the gradient of the next step is compared, because a run that
# is done saves nothing.
for ranks in 1 2 3 4; do
    mkdir "$work/load-$ranks"
    cp "$(checkpoint zero-1 6)" "$work/load-$ranks"
    trained "load on $ranks ranks" $ranks "load-$ranks" "${documents[@]}" run.steps=7 run.resume=must \
        "run.dump_gradients=$work/grads-$ranks.h5"
done
for ranks in 1 2 3; do
    close_metric "first loss after loading on $ranks ranks" 1e-6 loss load-4 load-$ranks
    said=$("$tutti" checkpoint diff "$work/grads-$ranks.h5" "$work/grads-4.h5")
    awk '$1 == "grads" { found = 1; good = $4 <= 1e-5 } /^identical/ { found = good = 1 }
         END { exit !(found && good) }' <<<"$said"
    verdict "first gradient after loading on $ranks ranks" $? "$(tr '\n' '|' <<<"$said")"
done
