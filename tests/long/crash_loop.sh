#!/usr/bin/env bash
# A run that is killed at a hundred random moments, by SIGKILL to one rank, to all or to the launcher, each
# time to go on with other numbers of ranks, ZeRO stages and ways to save, ends with the same digests in every
# step as one that nothing happened to. TUTTI_TEST_SEED=N draws the moments of another night.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/../cli/lib.sh"
prepare
# shellcheck source=tests/cli/crash_lib.sh
source "$(dirname "$0")/../cli/crash_lib.sh"
limit=300 # of the runs that are compared
seed=${TUTTI_TEST_SEED:-$(date +%Y%m%d)}
echo "note moments: TUTTI_TEST_SEED=$seed draws them again"
RANDOM=$seed
crash_loop 100
