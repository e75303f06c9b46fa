/* version.h: the version, once. */
#ifndef TUTTI_VERSION_H
#define TUTTI_VERSION_H

#define TUTTI_VERSION "0.1.0"

#endif
