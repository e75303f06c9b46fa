#!/usr/bin/env bash
# make_corpus.sh: writes the files that fuzzing begins with, tests/fuzz/corpus, anew.
#
#   tests/fuzz/make_corpus.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:-tests/fuzz/corpus}
make CONFIG=debug BUILD=build/debug build/debug/tests/fuzz/make_corpus
mkdir -p "$folder"/{config,tokens,checkpoint}
build/debug/tests/fuzz/make_corpus "$folder"
