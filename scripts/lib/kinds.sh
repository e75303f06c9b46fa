# shellcheck shell=bash
# kinds.sh: the ways of training that differ in numbers, each by one word. Sourced by the scripts that
# set them side by side. The first part of a word is precision.compute.

# shellcheck disable=SC2034 # for the sourcing scripts
all_kinds='fp32 tf32 bf16 bf16-split bf16-none bf16-stochastic bf16-fp32-ops fp16 fp16-dynamic fp8 fp8-delayed fp8-mxfp8 fp8-e5m2'

# kind_keys KIND: its keys of the configuration, a word each; nothing where there is no such kind.
kind_keys() {
    case $1 in
    fp32 | tf32 | bf16 | fp16 | fp8) echo "precision.compute=$1" ;;
    fp8-current) echo "precision.compute=fp8 fp8.recipe=current" ;;
    bf16-split) echo "precision.compute=bf16 precision.master=split" ;;
    bf16-none) echo "precision.compute=bf16 precision.master=none precision.rounding=nearest" ;;
    bf16-stochastic) echo "precision.compute=bf16 precision.master=none precision.rounding=stochastic" ;;
    bf16-fp32-ops) echo "precision.compute=bf16 precision.fp32_ops=[head,qkv]" ;;
    fp16-dynamic) echo "precision.compute=fp16 precision.loss_scale=dynamic" ;;
    fp8-delayed) echo "precision.compute=fp8 fp8.recipe=delayed" ;;
    fp8-mxfp8) echo "precision.compute=fp8 fp8.recipe=mxfp8" ;;
    fp8-e5m2) echo "precision.compute=fp8 fp8.backward=e5m2 precision.loss_scale=dynamic" ;;
    esac
}
