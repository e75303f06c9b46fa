/* file.h: the few things about files that must be done right once: durable rename, folders, names. */
#ifndef TUTTI_BASE_FILE_H
#define TUTTI_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tutti/base/status.h"
#include "tutti/base/text.h"

bool tt_file_exists(const char *path);
/* Is the open file the one at `path`? False also when nothing is there. */
bool tt_is_at(int fd, const char *path);
/* The system's calls, again while a signal interrupts them: on network file systems all of them may
 * take long. They return what those return, with errno, and the last three 0 or an error number.
 * Files that tt_open creates have mode 0666 less the umask, and both add O_CLOEXEC. Reads and writes
 * may move less than they were asked to. */
int tt_open(const char *path, int flags);
int tt_open_mode(const char *path, int flags, unsigned mode);
int tt_fsync(int fd);
int tt_ftruncate(int fd, int64_t length);
int64_t tt_read(int fd, void *data, size_t bytes);
int64_t tt_write(int fd, const void *data, size_t bytes);
int64_t tt_pread(int fd, void *data, size_t bytes, int64_t at);
int64_t tt_pwrite(int fd, const void *data, size_t bytes, int64_t at);
/* All the bytes; 0 or an error number, EIO where the system takes none. */
int tt_pwrite_all(int fd, const void *data, int64_t bytes, int64_t at);
/* Space for [from, from + bytes): fallocate(fd, 0, ...); posix_fallocate, which writes where a file
 * system cannot set space aside; and sync_file_range. */
int tt_fallocate(int fd, int64_t from, int64_t bytes);
int tt_posix_fallocate(int fd, int64_t from, int64_t bytes);
int tt_sync_range(int fd, int64_t from, int64_t bytes, unsigned how);
/* tt_open of a regular file: a pipe would wait for its other end, a device may never end. The reason
 * why it cannot be opened, or NULL: then *fd is open. */
const char *tt_open_regular(const char *path, int flags, int *fd);
/* fopen, "r" or "a", of a regular file; *file is the caller's. "cannot open PATH: why", and NULL. */
tt_code tt_fopen(FILE **file, const char *path, const char *mode, tt_err *err);
/* tt_open of a file that another process has just made, perhaps on another machine:
 * where it is not there, looks again for half a minute, calling `meanwhile` (may be NULL) before each
 * look. The descriptor, or -1 with errno. */
int tt_open_late(const char *path, int flags, void (*meanwhile)(void *user), void *user);
/* Creates the folder and its parents; an existing folder is fine. */
tt_code tt_make_folders(const char *path, tt_err *err);
/* fsync(path); rename(path, to); fsync(folder of to). */
tt_code tt_commit_file(const char *path, const char *to, tt_err *err);
/* Whole regular file into text (owned by the caller, tt_text_free); limit in bytes. */
tt_code tt_read_file(const char *path, size_t limit, tt_text *text, tt_err *err);
/* Writes beside, commits: `path` holds the old or the new text, never half. */
tt_code tt_write_file(const char *path, const char *bytes, size_t length, tt_err *err);
/* The same with what `fill` writes to `fd`, a new file; it fails with a sentence of its own. */
tt_code tt_replace_file(const char *path, tt_code (*fill)(void *user, int fd, tt_err *err),
                        void *user, tt_err *err);
/* At the end of a file that was opened with O_APPEND and that nobody else writes to: all the bytes, or
 * none, when not all of them fit. The sentence calls the file `name`. */
tt_code tt_append(int fd, const char *bytes, size_t length, const char *name, tt_err *err);
/* malloc'd "dir/name"; NULL on failure, which fills err. */
char *tt_join(const char *dir, const char *name, tt_err *err);
/* Resident and peak resident set of this process, bytes (0 where unknown). */
size_t tt_rss(void);
size_t tt_rss_peak(void);
/* The resident set in which a page that k processes map counts as a k-th of a page; 0: not known. */
size_t tt_pss(void);

#endif
