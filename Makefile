# tutti. `make help` lists the targets; src/README.md is the tour of the code.
#
# CONFIG=release|debug|asan|tsan|cov builds into build/$(CONFIG); none cleans another.
# LAYERS and BUILD narrow a build to some layers, elsewhere: make LAYERS="base data" BUILD=/tmp/b

CONFIG ?= release
BUILD  ?= build/$(CONFIG)
PREFIX ?= /usr/local
LAYERS ?= base numerics kernels data dist model optim ckpt train cli
export OMPI_CC ?= gcc
CC     := mpicc
AR     ?= ar

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

include scripts/libraries.mk

VERSION := $(shell sed -n 's/^\#define TUTTI_VERSION "\(.*\)"/\1/p' include/tutti/version.h)

WARN := -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla \
        -Wpointer-arith -Wwrite-strings -Wno-sign-conversion $(if $(WERROR),-Werror)
BASE := -std=c11 -D_GNU_SOURCE -fvisibility=hidden -fopenmp -ffp-contract=off \
        -fno-math-errno -g -Iinclude -Isrc -MMD -MP $(WARN)

FLAGS_release := -O2 -ftree-vectorize -DNDEBUG
FLAGS_debug   := -O1 -fno-omit-frame-pointer -DTUTTI_FAULTS
FLAGS_asan    := -O1 -fno-omit-frame-pointer -DTUTTI_FAULTS -fsanitize=address,undefined \
                 -fno-sanitize-recover=undefined
FLAGS_tsan    := -O1 -fno-omit-frame-pointer -DTUTTI_FAULTS -fsanitize=thread
FLAGS_cov     := -O0 -DTUTTI_FAULTS --coverage
ifeq ($(FLAGS_$(CONFIG)),)
$(error CONFIG=$(CONFIG) is not known; use release, debug, asan, tsan or cov)
endif

CFLAGS_ALL  = $(BASE) $(FLAGS_$(CONFIG)) -DTUTTI_CONFIG='"$(CONFIG)"' $(LIB_CFLAGS) $(CFLAGS)
LDFLAGS_ALL = -fopenmp $(filter -fsanitize=% --coverage,$(FLAGS_$(CONFIG))) $(LDFLAGS)

# Files in isa/ are compiled for the instruction set their name ends in; all else for the baseline,
# so one binary runs anywhere and picks at run time.
ISA_FLAGS = $(if $(filter %_avx512bf16,$1),-O3 -mavx512f -mavx512bw -mavx512vl -mavx512dq \
              -mavx512bf16 -mfma -mf16c -ffp-contract=fast,\
            $(if $(filter %_avx2,$1),-O3 -mavx2 -mfma -mf16c -ffp-contract=fast))

SRC     := $(foreach l,$(LAYERS),$(wildcard src/$l/*.c) $(wildcard src/$l/isa/*.c))
LIB_SRC := $(filter-out src/cli/main.c,$(SRC))
OBJ     := $(patsubst src/%.c,$(BUILD)/obj/%.o,$(SRC))
LIB_OBJ := $(patsubst src/%.c,$(BUILD)/obj/%.o,$(LIB_SRC))
LIB     := $(BUILD)/libtutti.a
EXE     := $(BUILD)/tutti

# tests/<layer>/test_*.c run as one process; tests/<layer>/mpi_*.c run on 1, 2, 3 and 4 ranks.
TEST_SRC := $(foreach l,$(LAYERS),$(wildcard tests/$l/test_*.c) $(wildcard tests/$l/mpi_*.c))
TEST_EXE := $(patsubst tests/%.c,$(BUILD)/tests/%,$(TEST_SRC))

.PHONY: all lib tests
all: $(EXE)
lib: $(LIB)
tests: $(TEST_EXE)

$(BUILD)/obj/%.o: src/%.c Makefile scripts/libraries.mk
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) $(call ISA_FLAGS,$*) -c $< -o $@

$(LIB): $(LIB_OBJ)
	@rm -f $@
	$(AR) rcs $@ $(LIB_OBJ)

$(EXE): $(BUILD)/obj/cli/main.o $(LIB)
	$(CC) $(LDFLAGS_ALL) $< $(LIB) $(LIBS) -o $@

$(BUILD)/obj/tests/%.o: tests/%.c Makefile
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) -Wno-conversion $(CHECK_CFLAGS) -Itests -c $< -o $@

$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(LIB)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS_ALL) $< $(LIB) $(LIBS) $(CHECK_LIBS) -o $@

.SECONDARY:
-include $(OBJ:.o=.d) $(patsubst tests/%.c,$(BUILD)/obj/tests/%.d,$(TEST_SRC))
