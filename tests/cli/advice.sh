#!/usr/bin/env bash
# What a run says of where its ranks run: once, only when something is not well, and before it trains. The
# sentences themselves are tests/train/test_advice.c's.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
prepare

processors=$(env -u OMP_NUM_THREADS nproc)
# Ranks that may run on all processors of this machine, whatever launcher or test has bound this script.
advice() { grep -c '^warning.*\(bound to one core\|processors\{0,1\} for\|share [0-9]* processor\|run on [0-9]* core\|NUMA domains\)' "$work/err"; }

if ((processors > 16)) || [[ -e /sys/devices/system/node/node1 ]]; then
    echo "skip advice: this machine is not a small one"
    exit 0
fi
trained "one rank" 1 one run.threads=1
equal "alone: all is well" 0 "$(advice)"
ranks=$((processors > 1 ? 2 : 1))
trained "a rank a core" $ranks few run.threads=1
equal "a rank a core: all is well" 0 "$(advice)"
trained "more ranks than processors" $((processors + 2)) many batch.sequences=$((processors + 2)) run.threads=1
equal "more ranks than processors: said once" 1 "$(advice)"
equal "before it trains" "1 yes" "$(awk '/share [0-9]* processor/ { at = NR } /^step 1\// { step = NR }
    END { print (at > 0), (step == 0 || at < step) ? "yes" : "no" }' "$work/err")"
trained "more threads than processors" 1 threads run.threads=$((processors + 1))
equal "more threads than processors: said once" 1 "$(advice)"
check "with the number that fits" grep -q "^warning: a rank has $processors processors\{0,1\} for $((processors + 1)) threads: set OMP_NUM_THREADS=$processors or run.threads=$processors$" "$work/err"

# Open MPI itself, which binds a single rank to one core. Not under a scheduler, which binds otherwise.
if ((processors > 1)) && [[ -z ${SLURM_JOB_ID-} ]] && mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
    root=()
    [[ $(id -u) == 0 ]] && root=(--allow-run-as-root)
    unset OMP_NUM_THREADS
    code=0
    timeout $limit mpirun "${root[@]}" -n 1 --bind-to core "$tutti" train "$work/tiny.yaml" run.dir="$work/bound" \
        </dev/null >"$work/out" 2>"$work/err" || code=$?
    verdict "a rank that mpirun binds to a core" "$code"
    check "is told how it gets more" grep -q '^warning: each rank is bound to one core.*mpirun --map-by ppr:1:node:PE=[0-9]* --bind-to core' "$work/err"
    # The flags it names do what it says.
    flags=$(sed -n 's/.*: mpirun \(--map-by .* --bind-to core\), or .*/\1/p' "$work/err")
    # shellcheck disable=SC2086 # words
    timeout $limit mpirun "${root[@]}" $flags "$tutti" train "$work/tiny.yaml" run.dir="$work/flags" \
        </dev/null >"$work/out" 2>"$work/err" || code=$?
    verdict "those flags" "$code"
    equal "after which all is well" 0 "$(advice)"
fi
