#!/usr/bin/env bash
# A tensor of 2.4 GB, beyond the 2 GB that a transfer of MPI, HDF5 or the system can take, saved by more ranks
# than there are tensors; loaded, verified and compared by programs that may not even map as much memory. A
# bit that flips behind the first 2 GB is found, and so is an end that is cut off.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/../cli/lib.sh"
limit=1800
elements=600000011 # a prime: nothing divides it
room=$(df --output=avail -B 1000000 "$work" | tail -n 1)
if ((room < 6000)); then
    echo "skip big: 6 GB are needed in $work, there are $room MB"
    exit
fi
# little COMMAND...: in as little memory as a program needs that links MPI, and no more.
little() { (ulimit -v 1500000 && timeout $limit "$@" >"$work/out" 2>"$work/err"); }

code=0
TUTTI_TEST_BIG=$elements TUTTI_TEST_BIG_DIR=$work scripts/run.sh -n 3 -t $limit \
    "$(dirname "$tutti")/tests/ckpt/mpi_big" >"$work/out" 2>"$work/err" || code=$?
verdict "3 ranks, one tensor: saved, loaded, verified, compared" "$code" "$(tail -n 3 "$work/out" "$work/err" | tr '\n' ' ')"
check "it has run" grep -Eq '^100%: Checks: [1-9]' "$work/out"
equal "only the two files are there" "a.h5 b.h5" "$(cd "$work" && echo *.h5 .*.part | sed 's/ \.\*\.part//')"
check "the file is beyond 2 GB" test "$(stat -c %s "$work/a.h5")" -gt 2400000000

check "verify, in little memory" little "$tutti" checkpoint verify "$work/a.h5"
little "$tutti" checkpoint diff "$work/a.h5" "$work/b.h5"
equal "diff, in little memory: they differ" 1 $?
check "diff: in one element" grep -q "^first difference: params/wte\[$((elements - 5))\]" "$work/out"

# flip BYTE: the lowest bit of it, in a.h5
flip() {
    local was
    was=$(od -An -tu1 -j "$1" -N 1 "$work/a.h5" | tr -d ' ')
    # shellcheck disable=SC2059 # the format is an escape
    printf "\\x$(printf %02x $((was ^ 1)))" | dd of="$work/a.h5" bs=1 seek="$1" conv=notrunc status=none
}
for at in 2400000000 2147483648 2147483647 1000000000; do
    flip $at
    little "$tutti" checkpoint verify "$work/a.h5"
    equal "a bit of byte $at: verify fails" 1 $?
    check "a bit of byte $at: params/wte is named" grep -q 'params/wte' "$work/out" "$work/err"
    flip $at
done
check "flipped back, all is well" little "$tutti" checkpoint verify "$work/a.h5"
truncate -s 2300000000 "$work/a.h5"
little "$tutti" checkpoint verify "$work/a.h5"
equal "cut off: verify fails" 1 $?
