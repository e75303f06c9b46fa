#!/usr/bin/env bash
# Bad weather, all of it: every fault of the file system that tests/io/shim.c knows, at bytes all over what a
# run writes and reads, on 1 to 3 ranks, with run.save_async and without; crashes at every named point, on the
# first rank and the last; bits that flip on their way to the disk. A run bears it, or ends with one sentence;
# earlier checkpoints stay, nothing half-made is left or taken for one, and the next start ends like a run
# that nothing happened to. TUTTI_TEST_SEED=N draws the bytes of another night.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/../cli/lib.sh"
prepare
# shellcheck source=tests/cli/weather_lib.sh
source "$(dirname "$0")/../cli/weather_lib.sh"
seed=${TUTTI_TEST_SEED:-$(date +%Y%m%d)}
echo "note bytes: TUTTI_TEST_SEED=$seed draws them again"
RANDOM=$seed
part='match=*/.step-00000004.h5.part'
late='allocate=EOPNOTSUPP' # space is not set aside, so that a full disk is met where it is written

# What each rank writes and reads of a checkpoint: bytes.
under "$part" 2 sizes
for r in 0 1; do
    wrote[r]=$(sed -n 's/^written //p' "$work/io.$r")
    read[r]=$(sed -n 's/^read //p' "$work/io.$r")
done
echo "note a checkpoint: rank 0 writes ${wrote[0]} bytes and reads ${read[0]}, rank 1 ${wrote[1]} and ${read[1]}"

# byte N: $at, when it is to be any of N bytes.
byte() { [[ $at != any ]] || { any "$1" && at=$drawn; }; }

for async in false true; do
    # --- what ends a run ---
    start_chain "ends-$async" run.save_async=$async
    for ranks in 1 2 3; do
        for fault in allocate=ENOSPC truncate=EIO truncate=ENOSPC open=EACCES unlink=EIO rename=EIO; do
            ends $ranks "$part $fault" "step-00000004.h5"
        done
        for rank in 0 $((ranks - 1)); do
            for fault in sync=EIO close=EIO close=EIO@2 open=EMFILE@2 read=EIO read=ESTALE@1; do
                ends $ranks "$part $fault ranks=$rank" "step-00000004.h5"
            done
        done
    done
    end_chain 2

    # --- a full disk, a broken one, a death, at any byte ---
    for rank in 0 1; do
        start_chain "bytes-$async-$rank" run.save_async=$async
        for fault in ENOSPC EIO EDQUOT KILL; do
            for at in 0 1 $((wrote[rank] - 1)) any any any any any; do
                byte "${wrote[rank]}"
                case $fault in
                KILL) dies 2 "$part $late write=KILL@$at ranks=$rank" ;;
                ENOSPC) ends 2 "$part $late write=$fault@$at ranks=$rank" "No space left on device" ;;
                *) ends 2 "$part write=$fault@$at ranks=$rank" "step-00000004.h5" ;;
                esac
            done
        done
        for at in any any any any any any; do
            byte "${read[rank]}"
            ends 2 "$part read=EIO@$at ranks=$rank" "step-00000004.h5"
        done
        end_chain 3
    done

    # --- bits that flip on their way ---
    # Of the metadata not every byte means something; what does not, may be anything.
    start_chain "flips-$async" run.save_async=$async
    for rank in 0 1; do
        for at in 0 $((wrote[rank] - 1)) any any any any any any any any; do
            byte "${wrote[rank]}"
            links=$((links + 1))
            under "$part flip=$at ranks=$rank" 2 "$chain" "${keys[@]}" run.steps=4
            name="$chain: byte $at of rank $rank"
            check "$name: it struck" struck flip
            if ((code == 0)); then
                undisturbed_so_far "$name: it means nothing"
                rm -f "$(checkpoint "$chain" 4)"
            else
                ended "$name: it is found" "$chain" 1 "step-00000004.h5"
            fi
        done
    done
    end_chain 3

    # Without reading back the file gets its name; `verify` finds the bit, and the next start goes back.
    start_chain "trusts-$async" run.save_async=$async run.read_back=false
    found=0
    for rank in 0 1; do
        for at in $((wrote[rank] - 1)) any any any any any any any any; do
            byte "${wrote[rank]}"
            links=$((links + 1))
            name="$chain: byte $at of rank $rank"
            under "$part flip=$at ranks=$rank" 2 "$chain" "${keys[@]}" run.steps=4
            verdict "$name: the run sees nothing" "$code"
            if "$tutti" checkpoint verify "$(checkpoint "$chain" 4)" >/dev/null 2>"$work/said"; then
                undisturbed_so_far "$name: it means nothing"
            else
                found=$((found + 1))
                train 1 "$chain" "${steady[@]}" "${keys[@]}" run.steps=4
                check "$name: passed over" grep -q '^warning: passed over: .*step-00000004.h5' "$work/err"
                undisturbed_so_far "$name: and made again"
            fi
            rm -f "$(checkpoint "$chain" 4)"
        done
    done
    check "$chain: bits were found ($found)" test "$found" -gt 6
    end_chain 3

    # --- a call that never returns ---
    start_chain "hangs-$async" run.save_async=$async dist.timeout=2
    for fault in sync=HANG write=HANG@20000 read=HANG@3000 open=HANG; do
        for rank in 0 1; do
            [[ $fault != open=HANG || $rank == 0 ]] || continue
            links=$((links + 1))
            under "$part $fault ranks=$rank" 2 "$chain" "${keys[@]}"
            ended "$chain: $fault on rank $rank" "$chain" 1 "rank $rank (host" part
        done
    done
    end_chain 2

    # --- lines: metrics, digests, data ---
    steps_in() { sed -n 's/^{"step": \([0-9]*\), "\(loss\|digest\|samples\)".*/\1/p' "$work/$chain/$1.jsonl"; }
    start_chain "lines-$async" run.save_async=$async
    for file in metrics digests data; do
        rm -f "$(checkpoint "$chain" 4)" "$(checkpoint "$chain" 6)"
        under "match=*/$file.jsonl" 2 "$chain" "${keys[@]}"
        size=$(sed -n 's/^written //p' "$work/io.0")
        four=$(grep -bom 1 '^{"step": 4,' "$work/$chain/$file.jsonl" | cut -d : -f 1)
        four=$((four + size - $(stat -c %s "$work/$chain/$file.jsonl"))) # its first byte, of those written
        for at in 0 1 $((size - 40)) $((four + 10)) any any any any any; do
            byte "$size"
            rm -f "$(checkpoint "$chain" 4)" "$(checkpoint "$chain" 6)" # from two steps again
            links=$((links + 1))
            under "match=*/$file.jsonl write=ENOSPC@$at" 2 "$chain" "${keys[@]}"
            ended "$chain: no room for byte $at of $file.jsonl" "$chain" 1 \
                "cannot write to $file.jsonl: No space left on device"
            # No step without its lines has been saved.
            last=$(basename "$(find "$work/$chain" -name 'step-*.h5' | LC_ALL=C sort | tail -n 1)" .h5)
            equal "$chain: no room for byte $at of $file.jsonl: every step that is saved has its line" \
                "$(seq $((10#${last#step-})))" "$(steps_in "$file" | head -n $((10#${last#step-})))"
        done
        rm -f "$(checkpoint "$chain" 4)" "$(checkpoint "$chain" 6)"
        # What is cut back is written beside, and renamed.
        for fault in write=ENOSPC@10 sync=EIO rename=EIO; do
            printf '{"step": 7, "half": 1}\n' >>"$work/$chain/$file.jsonl"
            ends 2 "match=*/$file.jsonl.part $fault" "$file.jsonl"
        done
        printf '{"step": 7, "half": 1}\n' >>"$work/$chain/$file.jsonl"
        dies 2 "match=*/$file.jsonl.part rename=KILL"
        dies 2 "match=*/$file.jsonl.part write=KILL@100"
    done
    end_chain 1

    # --- old checkpoints ---
    start_chain "prunes-$async" run.save_async=$async run.keep=1
    links=$((links + 1))
    under "match=*/step-00000002.h5 unlink=EIO" 2 "$chain" "${keys[@]}"
    ended "$chain: the old one cannot be deleted" "$chain" 1 "cannot delete"
    check "$chain: the new one is there" verify "$(checkpoint "$chain" 4)"
    start_chain "prunes-killed-$async" run.save_async=$async run.keep=1
    dies 2 "match=*/step-00000002.h5 unlink=KILL"
    check "$chain: old and new are there" test -e "$(checkpoint "$chain" 2)" -a -e "$(checkpoint "$chain" 4)"
    end_chain 2
    equal "$chain: one is kept" step-00000006.h5 "$(cd "$work/$chain" && echo step-*)"

    # --- reading what was saved ---
    start_chain "loads-$async" run.save_async=$async
    for rank in 0 1; do
        for at in 0 any any any; do
            byte 100000
            # Where it is the only one, nothing is begun anew over it.
            links=$((links + 1))
            under "match=*/step-00000002.h5 read=EIO@$at ranks=$rank" 2 "$chain" "${keys[@]}"
            ended "$chain: it cannot be read from byte $at on rank $rank" "$chain" 1 "step-00000002.h5"
        done
        ends 2 "match=*/step-00000002.h5 open=EIO ranks=$rank" "step-00000002.h5"
        ends 2 "match=*/tokens.h5 read=EIO@20000 ranks=$rank" "tokens.h5"
    done
    end_chain 3

    # --- what is borne ---
    for ranks in 1 2 3; do
        bears $ranks "match=$work/bears/* short=1" short run.save_async=$async
        bears $ranks "match=$work/* short=4097" short run.save_async=$async
        bears $ranks "match=$work/* eintr=2" eintr run.save_async=$async
        bears $ranks "match=$work/bears/* slow=20" "" run.save_async=$async dist.timeout=2
        bears $ranks "match=$work/bears/* open_direct=EINVAL" open_direct+EINVAL run.save_async=$async
        bears $ranks "match=$work/bears/* direct=EINVAL" direct+EINVAL run.save_async=$async
        bears $ranks "match=$part allocate=ENOSYS" "" run.save_async=$async
        bears $ranks "${part/00000004/*} allocate=EOPNOTSUPP" allocate+ENOTSUP run.save_async=$async
        bears $ranks "match=* lock=ENOLCK" "" run.save_async=$async
        bears $ranks "match=* lock=ENOTSUP" "" run.save_async=$async
        if ((ranks > 1)); then
            bears $ranks "match=*step-* late=1500 ranks=1,2" late run.save_async=$async
        fi
    done
done

# --- crashes at every named point ---
if "$tutti" version | grep -q '(\(debug\|asan\|tsan\|cov\) build'; then
    code=0
    TUTTI_FAULT='?' timeout "$limit" "$tutti" train "$work/tiny.yaml" "run.dir=$work/none" >/dev/null 2>"$work/err"
    points=$(sed -n 's/.*<point> one of //p' "$work/err" | tr -d ,)
    check "there are named points" test "$(wc -w <<<"$points")" -ge 20
    for async in false true; do
        for ranks in 1 3; do
            start_chain "points-$async-$ranks" "run.save_async=$async" run.eval_every=2
            for point in $points; do
                step=4
                case $point in
                in_start) step=0 ;;
                in_load) step=2 ;;
                after_prune | in_end) continue ;; # below, as they leave something to go on from
                esac
                for rank in 0 $((ranks - 1)); do
                    rm -f "$(checkpoint "$chain" 4)" # of a crash after it had its name
                    crashes $ranks $rank "$point" $step
                done
            done
            rm -f "$(checkpoint "$chain" 4)"
            crashes $ranks 0 after_prune 4
            crashes $ranks $((ranks - 1)) in_end 6
            end_chain 2
        done
    done
else
    echo "skip crashes at named points: this build has none"
fi
