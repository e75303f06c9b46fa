# Where the libraries are: asks pkg-config under the names that distributions use. Every result can be
# set from outside (spack, conda, modules): make LIB_CFLAGS=... LIBS=...
PKG_CONFIG ?= pkg-config
pick = $(firstword $(foreach p,$1,$(shell $(PKG_CONFIG) --exists $p 2>/dev/null && echo $p)))

HDF5_PC := $(call pick,hdf5-openmpi hdf5-mpi hdf5)
BLAS_PC := $(call pick,openblas)
YAML_PC := $(call pick,yaml-0.1)
FOUND   := $(HDF5_PC) $(BLAS_PC) $(YAML_PC)

LIB_CFLAGS ?= $(shell $(PKG_CONFIG) --cflags $(FOUND) 2>/dev/null)
LIBS       ?= $(shell $(PKG_CONFIG) --libs $(FOUND) 2>/dev/null) -lm
CHECK_CFLAGS ?= $(shell $(PKG_CONFIG) --cflags check 2>/dev/null)
CHECK_LIBS   ?= $(shell $(PKG_CONFIG) --libs check 2>/dev/null)
