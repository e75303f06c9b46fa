#!/usr/bin/env bash
# Bad weather between the program and its disk (tests/io/shim.c), and crashes at named points: a slice of
# tests/long/weather.sh. What must be borne is borne; else the run ends with one sentence, earlier checkpoints
# stay, nothing half-made is left or taken for one, and the next start ends like a run that nothing happened to.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
prepare
# shellcheck source=tests/cli/weather_lib.sh
source "$(dirname "$0")/weather_lib.sh"
part='match=*/.step-00000004.h5.part'

start_chain waits run.save_async=false
ends 2 "$part allocate=ENOSPC" "step-00000004.h5: No space left on device"
ends 3 "$part allocate=EOPNOTSUPP write=ENOSPC@130500" "step-00000004.h5: No space left on device"
ends 2 "$part write=EIO@33000 ranks=1" "rank 1: cannot write"
ends 2 "$part flip=4200 ranks=1" "reads back with other values"
# In the line of step 4, which is due to be saved: it is not, or that line would be missing for ever.
ends 2 "match=*/digests.jsonl write=ENOSPC@$(($(sed -n 3p "$work/whole/digests.jsonl" | wc -c) + 5))" \
    "cannot write to digests.jsonl: No space left on device"
dies 2 "$part rename=KILL"
end_chain 3

start_chain async run.save_async=true
ends 2 "$part write=EDQUOT@1 ranks=1" "step-00000004.h5: Disk quota exceeded"
ends 1 "$part sync=EIO" "to the disk: Input/output error"
ends 3 "$part rename=EIO" "cannot rename"
ends 2 "$part read=EIO@50000 ranks=1" "does not read back: Input/output error"
dies 2 "$part write=KILL@20000 ranks=1"
end_chain 1

bears 2 "match=* short=900 eintr=3 slow=1 lock=ENOLCK" "short eintr" run.save_async=true
bears 3 "match=*step-* late=300 ranks=1,2 open_direct=EINVAL" "late open_direct+EINVAL" run.save_async=false

if "$tutti" version | grep -q '(\(debug\|asan\|tsan\|cov\) build'; then
    start_chain points run.save_async=true
    crashes 2 1 in_load 2
    crashes 2 0 in_snapshot 4
    crashes 3 2 mid_read_back 4
    crashes 2 0 before_prune 4 run.keep=1
    crashes 2 1 after_update 6
    end_chain 2
else
    echo "skip crashes at named points: this build has none"
fi
