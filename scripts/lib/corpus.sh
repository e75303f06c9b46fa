# shellcheck shell=bash
# corpus.sh: real text that is always at hand: this project's own sources and documents. Sourced by
# scripts that train on it, in the project's folder.

# project_text: the files, in an order that no locale changes. Golden numbers are no text.
project_text() {
    find src include tests configs scripts README.md CHANGELOG.md Makefile -type f \
        \( -name '*.[ch]' -o -name '*.sh' -o -name '*.md' -o -name '*.yaml' -o -name Makefile \) \
        ! -name 'golden*' | LC_ALL=C sort
}
