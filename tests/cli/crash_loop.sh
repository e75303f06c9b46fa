#!/usr/bin/env bash
# A run that is killed at five random moments: a slice of tests/long/crash_loop.sh.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
prepare
# shellcheck source=tests/cli/crash_lib.sh
source "$(dirname "$0")/crash_lib.sh"
RANDOM=${TUTTI_TEST_SEED:-5}
crash_loop 5
