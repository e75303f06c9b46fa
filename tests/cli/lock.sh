#!/usr/bin/env bash
# One job at a time in run.dir: a second one is refused and harms nothing; a job that is gone, however it went,
# is in nobody's way.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
prepare

# kill_all NAME RANKS: the job of `begin` and all its ranks, at once.
kill_all() {
    local r
    for ((r = 0; r < $2; r++)); do
        kill -KILL "$(<"$work/$1.pid.$r")"
    done
    wait "$job" 2>/dev/null
}

# --- a second job is refused ---
begin busy 2
holder=$(<"$work/busy.pid.0")
before=$(cd "$work/busy" && find . | sort; cat "$work/busy/lock")
steps=$(metric busy loss | wc -l)
start=$SECONDS
train 3 busy run.steps=2 run.resume=never dist.timeout=5 # its ranks are patient too
took=$((SECONDS - start))
refused "a second job is refused" 2 "run.dir $work/busy is in use by another job, process $holder on $(uname -n) since 2"
check "after some patience: $took s" test $took -ge 10
equal "it has moved and made nothing" "$before" "$(cd "$work/busy" && find . | sort; cat "$work/busy/lock")"
check "the first goes on" test "$(metric busy loss | wc -l)" -gt "$steps"
kill -USR1 "$job"
code=0
wait "$job" || code=$?
equal "and ends as it should" 75 $code
check "with a whole checkpoint" verify "$(find "$work/busy" -name 'step-*.h5')"
equal "the lock says nothing any more" "" "$(<"$work/busy/lock")"

# --- a job that was killed ---
begin killed 2 run.save_every=1
kill_all killed 2
check "the file of a killed job stays" grep -q "^process " "$work/killed/lock"
start=$EPOCHREALTIME
train 2 killed run.steps=1
verdict "and the next starts" "$code"
check "at once" awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { exit !(b - a < 8) }'

# --- a job that is about to end ---
begin ending 1 run.save_every=1
first=$job
holder=$(<"$work/ending.pid.0")
{
    sleep 3
    kill -KILL "$holder"
} &
train 2 ending run.steps=1
verdict "one that ends soon is waited for" "$code"
wait "$first"

# --- a file system without locks ---
if ! cc -shared -fPIC -o "$work/no_locks.so" tests/cli/no_locks.c -ldl 2>"$work/err"; then
    echo "not ok no_locks: $(head -n 1 "$work/err")"
    exit
fi
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0
# ENOLCK, ENOSYS, EOPNOTSUPP, EINVAL
for number in 37 38 95 22; do
    code=0
    scripts/run.sh -n 2 -t $limit env "LD_PRELOAD=$work/no_locks.so" NO_LOCKS=$number "$tutti" train "$work/tiny.yaml" \
        "run.dir=$work/none-$number" run.steps=1 >"$work/out" 2>"$work/err" || code=$?
    equal "where locks are refused ($number) the run goes on, and says so once" "0 1" \
        "$code $(grep -c "the file system of run.dir $work/none-$number refuses locks (" "$work/err")"
done

# --- something else of that name ---
mkdir "$work/notes"
echo "my notes" >"$work/notes/lock"
train 2 notes run.steps=1
refused "a file that is no lock" 2 "$work/notes/lock"
equal "is left alone" "my notes lock" "$(cat "$work/notes/lock") $(ls "$work/notes")"

# --- the lock, or the whole folder, goes while a job runs ---
# said TEXT: in what the job of `begin` says.
said() { grep -qF "$1" "$work/err"; }

begin gone 2 run.save_every=4
holder=$(<"$work/gone.pid.0")
rm "$work/gone/lock" "$work/gone/metrics.jsonl"
check "a lock that was removed is made anew" awaits said "run.dir $work/gone or its lock file was moved or removed"
check "and says whose it is" awaits grep -qs "^process $holder " "$work/gone/lock"
check "lines that were removed are missed" awaits said "$work/gone/metrics.jsonl was moved, removed or replaced"
check "and go on" awaits has_steps gone 2
kill -USR1 "$job"
code=0
wait "$job" || code=$?
equal "and the run ends as it should" 75 $code
equal "each is said once" "1 1" "$(grep -c 'moved or removed while' "$work/err") \
$(grep -c 'moved, removed or replaced' "$work/err")"

begin here 2
mv "$work/here" "$work/moved"
kill -USR1 "$job"
code=0
wait "$job" || code=$?
equal "a run whose folder was moved ends as it should" 75 $code
check "with a whole checkpoint where it belongs" verify "$(find "$work/here" -name 'step-*.h5')"
check "and a line about it" grep -q '"saved": "step-' "$work/here/metrics.jsonl"
check "and says so" said "run.dir $work/here or its lock file was moved or removed"

# stops NAME: by SIGUSR1, with 75, and what it says is saved is there.
stops() {
    kill -USR1 "$job"
    code=0
    wait "$job" || code=$?
    equal "$1: it ends as it should" 75 $code
    check "$1: what it says is saved is there" verify "$(checkpoint "$1" "$(sed -n 's/^tutti: .* step \([0-9]*\)[,;].*/\1/p' "$work/err")")"
}
# late NAME RANKS POINT STEP KEY=VALUE...: a run that is slow at a point, in the background until that step.
late() {
    local name=$1
    TUTTI_FAULT="slow=$3:rank=0,step=$4" launch "$name" "$2" run.steps=1000000 "${@:5}"
    awaits said "is slow in step"
}

late saved 1 in_micro 5 run.save_every=4
rm "$work"/saved/step-*.h5
stops saved
train 1 again run.steps=4
late again 2 in_micro 5
mv "$work/again" "$work/again.moved"
stops again
check "again: and says so" said "step-00000004.h5 is not there any more"

# The scale soon goes where gradients are not finite.
late finite 2 in_micro 4 precision.compute=fp16 precision.loss_scale=dynamic scaler.interval=4 scaler.growth=1e9 \
    scaler.cap=1e18 optim.max_skips=1000000
mv "$work/finite" "$work/finite.moved"
check "a first step that is not finite has its file" awaits test -s "$work/finite/nonfinite.jsonl"
stops finite

begin pipe 1 run.save_every=100000
rm "$work/pipe/metrics.jsonl"
mkfifo "$work/pipe/metrics.jsonl"
kill -USR1 "$job"
code=0
wait "$job" || code=$?
failed "a pipe in the place of metrics.jsonl is not waited for" 1 "cannot open $work/pipe/metrics.jsonl"

begin two 2
first=$job
mv "$work/err" "$work/err.first"
rm "$work/two/lock"
launch two 1 run.steps=1000000
holder() { grep -qs '^process ' "$work/two/lock"; }
check "without its lock a second job comes in" awaits holder
kill -USR1 "$first"
code=0
wait "$first" || code=$?
cp "$work/err.first" "$work/err"
failed "the first is told when it would save" 2 "run.dir $work/two is in use by another job, process"
equal "and leaves no file" "" "$(find "$work/two" -name '*step-*')"
kill -USR1 "$job"
code=0
wait "$job" || code=$?
equal "the second ends as it should" 75 $code
