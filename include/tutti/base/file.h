/* file.h: the few things about files that must be done right once: durable rename, folders, names. */
#ifndef TUTTI_BASE_FILE_H
#define TUTTI_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "tutti/base/status.h"
#include "tutti/base/text.h"

bool tt_file_exists(const char *path);
/* Creates the folder and its parents; an existing folder is fine. */
tt_code tt_make_folders(const char *path, tt_err *err);
/* fsync(path); rename(path, to); fsync(folder of to). */
tt_code tt_commit_file(const char *path, const char *to, tt_err *err);
/* Whole regular file into text (owned by the caller, tt_text_free); limit in bytes. */
tt_code tt_read_file(const char *path, size_t limit, tt_text *text, tt_err *err);
/* Writes beside, commits: `path` holds the old or the new text, never half. */
tt_code tt_write_file(const char *path, const char *bytes, size_t length, tt_err *err);
/* malloc'd "dir/name"; NULL on failure, which fills err. */
char *tt_join(const char *dir, const char *name, tt_err *err);
/* Resident and peak resident set of this process, bytes (0 where unknown). */
size_t tt_rss(void);
size_t tt_rss_peak(void);
/* The resident set in which a page that k processes map counts as a k-th of a page; 0: not known. */
size_t tt_pss(void);

#endif
