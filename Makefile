# tutti. `make help` lists the targets; src/README.md is the tour of the code.
#
# CONFIG=release|debug|asan|tsan|cov|fuzz builds into build/$(CONFIG); none cleans another.
# LAYERS and BUILD narrow a build to some layers, elsewhere: make LAYERS="base data" BUILD=/tmp/b
# V=1 shows whole commands; WERROR=1 makes warnings errors; CFLAGS and LDFLAGS are added at the end.
# DNNL=1 builds into build/$(CONFIG)-dnnl with oneDNN beside our matmuls in `tutti bench gemm`.

CONFIG ?= release
BUILD  ?= build/$(CONFIG)$(if $(DNNL),-dnnl)
PREFIX ?= /usr/local
LAYERS ?= base numerics kernels data dist model optim ckpt train cli
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)
export OMPI_CC ?= gcc
ifeq ($(CONFIG),fuzz)
OMPI_CC := clang
endif
CC     := mpicc
AR     ?= ar

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(JOBS)
endif

include scripts/libraries.mk

VERSION := $(shell sed -n 's/^\#define TUTTI_VERSION "\(.*\)"/\1/p' include/tutti/version.h)

WARN := -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla \
        -Wpointer-arith -Wwrite-strings -Wno-sign-conversion $(if $(WERROR),-Werror)
BASE := -std=c11 -D_GNU_SOURCE -fvisibility=hidden -fopenmp -ffp-contract=off \
        -fno-math-errno -fno-trapping-math -g -Iinclude -Isrc -MMD -MP $(WARN)

FLAGS_release := -O2 -ftree-vectorize -DNDEBUG
FLAGS_debug   := -O1 -fno-omit-frame-pointer -DTUTTI_FAULTS
FLAGS_asan    := -O1 -fno-omit-frame-pointer -DTUTTI_FAULTS -fsanitize=address,undefined \
                 -fno-sanitize-recover=undefined
FLAGS_tsan    := -O1 -fno-omit-frame-pointer -DTUTTI_FAULTS -fsanitize=thread
FLAGS_cov     := -O0 -DTUTTI_FAULTS --coverage
# clang's: its libFuzzer looks for inputs by the code that they reach.
FLAGS_fuzz    := -O1 -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined \
                 -fno-sanitize-recover=undefined -Wno-unknown-pragmas
ifeq ($(FLAGS_$(CONFIG)),)
$(error CONFIG=$(CONFIG) is not known; use release, debug, asan, tsan, cov or fuzz)
endif

CFLAGS_ALL  = $(BASE) $(FLAGS_$(CONFIG)) -DTUTTI_CONFIG=\"$(CONFIG)\" $(if $(DNNL),-DTUTTI_DNNL) \
              $(LIB_CFLAGS) $(CFLAGS)
LDFLAGS_ALL = -fopenmp $(filter -fsanitize=% --coverage,$(FLAGS_$(CONFIG))) $(LDFLAGS)

# Files in isa/ are compiled for the instruction set their name ends in; all else for the baseline,
# so one binary runs anywhere and picks at run time.
ISA_avx2       := -O3 -mavx2 -mfma -mf16c
ISA_avx512     := -O3 -mprefer-vector-width=512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c
ISA_avx512bf16 := $(ISA_avx512) -mavx512bf16
ISA_FLAGS = $(if $(findstring /isa/,$1),$(ISA_$(lastword $(subst _, ,$1))))

SRC     := $(foreach l,$(LAYERS),$(wildcard src/$l/*.c) $(wildcard src/$l/*/*.c))
ifeq ($(DNNL),)
SRC     := $(filter-out src/cli/bench_dnnl.c,$(SRC))
endif
LIB_SRC := $(filter-out src/cli/main.c,$(SRC))
OBJ     := $(patsubst src/%.c,$(BUILD)/obj/%.o,$(SRC))
LIB_OBJ := $(patsubst src/%.c,$(BUILD)/obj/%.o,$(LIB_SRC))
LIB     := $(BUILD)/libtutti.a
EXE     := $(BUILD)/tutti

# tests/<layer>/test_*.c run as one process; tests/<layer>/mpi_*.c run on 1, 2, 3 and 4 ranks.
TEST_SRC := $(foreach l,$(LAYERS),$(wildcard tests/$l/test_*.c) $(wildcard tests/$l/mpi_*.c))
TEST_EXE := $(patsubst tests/%.c,$(BUILD)/tests/%,$(TEST_SRC))

# Tests want faults and asserts: they run on the debug build unless CONFIG or BUILD says otherwise.
# `make test` then also runs the single-process tests on the release build, which is what users run.
TESTED       := $(if $(filter file,$(origin CONFIG)),debug,$(CONFIG))
TESTED_BUILD := $(if $(filter file,$(origin BUILD)),build/$(TESTED),$(BUILD))
ALSO_BUILD   := $(if $(filter file,$(origin CONFIG)),$(if $(filter file,$(origin BUILD)),build/release))

# Under the address sanitizer programs keep their modules, so that the leaks of others have names.
KEEP := $(if $(filter asan,$(CONFIG)),$(BUILD)/obj/tests/keep_modules.o)

SAY = @$(if $(V),,printf '  %-6s%s\n' $1 $2;)
Q   = $(if $(V),,@)

##  all        (default) build/release/tutti
##  lib        build the library alone
##  tests      build every test program
.PHONY: all lib tests
all: $(EXE)
lib: $(LIB)
tests: $(TEST_EXE)

##  demo       install what is missing, build, train a small model on 2 ranks, sample, plot
##  test       install what is missing, build, run every test
##  test-long  for the night: exact mode in every format, random splits from a seed it prints, bad weather,
##             a hundred kills, the labs
##  check      the quick part of the tests; CONFIG=asan make check runs it under the sanitizers
.PHONY: demo test test-long check
demo:
	@scripts/setup.sh
	@$(MAKE) CONFIG=release BUILD=build/release all
	@TUTTI_BIN=build/release/tutti scripts/demo.sh

test:
	@scripts/setup.sh
	@$(MAKE) CONFIG=$(TESTED) BUILD=$(TESTED_BUILD) all tests
	@$(if $(ALSO_BUILD),$(MAKE) CONFIG=release BUILD=$(ALSO_BUILD) all tests)
	@scripts/test.sh $(TESTED_BUILD) $(ALSO_BUILD)

test-long:
	@scripts/setup.sh
	@$(MAKE) CONFIG=$(TESTED) BUILD=$(TESTED_BUILD) all tests
	@$(if $(ALSO_BUILD),$(MAKE) CONFIG=release BUILD=$(ALSO_BUILD) all)
	@scripts/test.sh --long $(TESTED_BUILD) $(ALSO_BUILD)

check:
	@$(MAKE) CONFIG=$(TESTED) BUILD=$(TESTED_BUILD) all tests
	@scripts/test.sh --quick $(TESTED_BUILD)

##  fuzz       libFuzzer on configurations, token files, checkpoints, FUZZ_SECONDS=600 side by side
.PHONY: fuzz
FUZZ_SECONDS ?= 600
fuzz:
	@scripts/setup.sh --fuzz
	@scripts/fuzz.sh --check
	@$(MAKE) CONFIG=fuzz BUILD=build/fuzz LAYERS="base numerics data dist ckpt" fuzzers
	@scripts/fuzz.sh --seconds $(FUZZ_SECONDS) build/fuzz

##  labs       break training on purpose, see scripts/labs/README.md: what goes wrong and what cures it
.PHONY: labs
labs:
	@scripts/setup.sh
	@$(MAKE) CONFIG=release BUILD=build/release all
	@$(MAKE) CONFIG=debug BUILD=build/debug all
	@failed=; for lab in scripts/labs/*.sh; do \
	    printf '\n== %s\n' $$lab; timeout 150 $$lab || failed="$$failed $$lab"; \
	done; [ -z "$$failed" ] || { echo "tutti: labs that failed:$$failed" >&2; exit 1; }

##  bench      measure this machine and the kernels on it: peak, matmuls, attention, a step, sums;
##             a table in build/bench.md; DNNL=1 puts oneDNN beside the matmuls
##  equivalence  train one batch in many splits and compare what was learned
.PHONY: bench equivalence
bench: all
	@TUTTI_BIN=$(EXE) scripts/bench.sh build

equivalence: all
	@TUTTI_BIN=$(abspath $(EXE)) scripts/verify_equivalence.sh configs/equivalence.yaml

##  lint       layers, formatting, scripts, static analysis, and a build without warnings
##  format     format every C file
.PHONY: lint format
lint:
	@scripts/setup.sh --dev
	@$(MAKE) CONFIG=release BUILD=build/lint WERROR=1 all tests
	@scripts/lint.sh --self-test
	@scripts/lint.sh --library build/lint/libtutti.a

format:
	clang-format -i $(shell find include src tests -name '*.[ch]' ! -name 'golden*')

##  readme     write the table of options into README.md anew
.PHONY: readme
readme: all
	@{ sed '/^<!-- options/q' README.md; $(EXE) options --markdown; \
	    sed -n '/^<!-- \/options/,$$p' README.md; } > $(BUILD)/README.md
	@mv $(BUILD)/README.md README.md

##  install    PREFIX=/usr/local: the program, the library, headers, configurations, scripts
##  clean      remove build/
##  info       what this build would use
##  help       this list
.PHONY: install clean info help
install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib $(DESTDIR)$(PREFIX)/share/tutti
	install -m 755 $(EXE) $(DESTDIR)$(PREFIX)/bin/tutti
	install -m 644 $(LIB) $(DESTDIR)$(PREFIX)/lib/libtutti.a
	cd include && find tutti -name '*.h' -exec install -D -m 644 {} $(abspath $(DESTDIR)$(PREFIX))/include/{} \;
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/tutti/configs configs/*.yaml
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/share/tutti/scripts scripts/run.sh scripts/supervise.sh \
	    scripts/plot_loss.sh scripts/verify_equivalence.sh
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/share/tutti/scripts/mpirun scripts/mpirun/train.sh
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/tutti/scripts/mpirun scripts/mpirun/hostfile
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/tutti/scripts/lib scripts/lib/*.sh

clean:
	rm -rf build

info:
	@printf '%-10s %s\n' version '$(VERSION)' config '$(CONFIG)' build '$(BUILD)' \
	    compiler "$$($(CC) --version 2>/dev/null | head -n 1)" \
	    mpi "$$(mpirun --version 2>/dev/null | head -n 1)" \
	    hdf5 '$(HDF5_PC) '"$$($(PKG_CONFIG) --modversion $(HDF5_PC) 2>/dev/null)" \
	    blas '$(BLAS_PC) '"$$($(PKG_CONFIG) --modversion $(BLAS_PC) 2>/dev/null)" \
	    yaml "$$($(PKG_CONFIG) --modversion $(YAML_PC) 2>/dev/null)" \
	    missing '$(strip $(MISSING) $(TESTS_MISSING))' layers '$(LAYERS)' \
	    flags '$(CFLAGS_ALL)' libs '$(LIBS)' jobs '$(JOBS)'

help:
	@sed -n 's/^##//p' Makefile
	@sed -n '3,6s/^# *//p' Makefile

# Says in one sentence what is missing, instead of pages of compiler errors.
.PHONY: need need-tests force
need:
ifneq ($(strip $(MISSING)),)
	@echo "tutti: not found: $(strip $(MISSING)) install it with scripts/setup.sh" \
	    "(scripts/setup.sh --check names the packages)" >&2; exit 1
endif
need-tests: need
ifneq ($(strip $(TESTS_MISSING)),)
	@echo "tutti: not found: $(TESTS_MISSING) install it with scripts/setup.sh" >&2; exit 1
endif

# Changes only when the compiler or a flag does; then everything in this build folder is made anew.
FLAGS_TEXT = $(CC) $(OMPI_CC) $(CFLAGS_ALL) $(CHECK_CFLAGS) $(foreach i,avx2 avx512 avx512bf16,$(ISA_$i))
$(BUILD)/flags: force | need
	@mkdir -p $(@D)
	@printf '%s\n' '$(FLAGS_TEXT)' | cmp -s - $@ || printf '%s\n' '$(FLAGS_TEXT)' > $@

$(BUILD)/obj/%.o: src/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call SAY,cc,$<)
	$(Q)$(CC) $(CFLAGS_ALL) $(call ISA_FLAGS,$*) -c $< -o $@

$(LIB): $(LIB_OBJ)
	$(call SAY,ar,$@)
	@rm -f $@
	$(Q)$(AR) rcs $@ $(LIB_OBJ)

$(EXE): $(BUILD)/obj/cli/main.o $(KEEP) $(LIB)
	$(call SAY,link,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ $(LIBS) -o $@

$(BUILD)/obj/tests/%.o: tests/%.c $(BUILD)/flags | need-tests
	@mkdir -p $(@D)
	$(call SAY,cc,$<)
	$(Q)$(CC) $(CFLAGS_ALL) -Wno-conversion -Wno-psabi $(CHECK_CFLAGS) -Itests -c $< -o $@

$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(KEEP) $(LIB)
	@mkdir -p $(@D)
	$(call SAY,link,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ $(LIBS) $(CHECK_LIBS) -o $@

# The targets of `make fuzz`. What makes their inputs is not what is tested.
FUZZ_OBJ := $(patsubst tests/%.c,$(BUILD)/obj/tests/%.o,$(wildcard tests/fuzz/*.c))
.PHONY: fuzzers
fuzzers: $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/fuzz/fuzz_*.c))

$(BUILD)/obj/tests/fuzz/h5_mend.o: CFLAGS += $(if $(filter fuzz,$(CONFIG)),-O2 -fno-sanitize=all \
    -fno-sanitize=fuzzer-no-link)

$(BUILD)/tests/fuzz/fuzz_%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(BUILD)/obj/tests/fuzz/h5_mend.o $(LIB)
	@mkdir -p $(@D)
	$(call SAY,link,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -fsanitize=fuzzer $^ $(LIBS) -o $@

.SECONDARY:
-include $(OBJ:.o=.d) $(patsubst tests/%.c,$(BUILD)/obj/tests/%.d,$(TEST_SRC)) $(FUZZ_OBJ:.o=.d)
