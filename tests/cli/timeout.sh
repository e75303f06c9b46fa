#!/usr/bin/env bash
# A rank that is stopped is named when dist.timeout is over, or two seconds later: the time that it has to answer
# is not added. The ways to be stuck are ends.sh's.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
prepare
for who in "1 8" "0 10"; do
    read -r rank timeout <<<"$who"
    begin "stop$rank" 3 "dist.timeout=$timeout"
    kill -STOP "$(<"$work/stop$rank.pid.$rank")"
    code=0
    wait "$job" || code=$?
    equal "rank $rank is stopped: exit code" 1 "$code"
    said=$(sed -n "s/.*rank $rank (host .*) has made no progress for \([0-9]*\) s (dist.timeout is $timeout).*/\1/p" "$work/err" | head -n 1)
    check "rank $rank is named after $timeout s, not long after (${said:-never})" test "${said:-99}" -ge "$timeout" -a "${said:-99}" -le $((timeout + 2))
done
