# Where the libraries are: asks pkg-config under the names that distributions use. Every result can be
# set from outside (spack, conda, modules): make LIB_CFLAGS=... LIBS=... CHECK_CFLAGS=... CHECK_LIBS=...
#
# Sets LIB_CFLAGS and LIBS, CHECK_CFLAGS and CHECK_LIBS, and MISSING and TESTS_MISSING: names, for
# people, of what was not found. Any HDF5 will do, with MPI or without; the first found is taken.
PKG_CONFIG ?= pkg-config
pick = $(firstword $(foreach p,$1,$(shell $(PKG_CONFIG) --exists $p 2>/dev/null && echo $p)))

HDF5_PC := $(call pick,hdf5-openmpi hdf5-mpi hdf5 hdf5-serial)
BLAS_PC := $(call pick,openblas)
YAML_PC := $(call pick,yaml-0.1)
FOUND   := $(HDF5_PC) $(BLAS_PC) $(YAML_PC)

MISSING := $(if $(shell command -v $(CC)),,MPI's compiler $(CC);)
ifeq ($(origin LIBS),undefined)
MISSING += $(if $(HDF5_PC),,HDF5;) $(if $(BLAS_PC),,OpenBLAS;) $(if $(YAML_PC),,libyaml;)
endif
ifneq ($(DNNL),)
MISSING += $(if $(shell echo '\043include <dnnl.h>' | $(CC) -E - >/dev/null 2>&1 && echo y),,oneDNN (scripts/setup.sh --bench);)
endif
ifeq ($(origin CHECK_LIBS),undefined)
TESTS_MISSING := $(if $(call pick,check),,the Check test library;)
endif

LIB_CFLAGS   ?= $(shell $(PKG_CONFIG) --cflags $(FOUND) 2>/dev/null)
LIBS         ?= $(shell $(PKG_CONFIG) --libs $(FOUND) 2>/dev/null) $(if $(DNNL),-ldnnl) -lm
CHECK_CFLAGS ?= $(shell $(PKG_CONFIG) --cflags check 2>/dev/null)
CHECK_LIBS   ?= $(shell $(PKG_CONFIG) --libs check 2>/dev/null)
