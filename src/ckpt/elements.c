/* elements.c: what a rank does with the elements of a checkpoint on its own: writes its pieces where
 * they belong and brings them to the disk, and reads a share of all of them back.
 *
 * HDF5 has set aside the space of every tensor and said where it begins (meta.c). From there on the
 * elements are bytes at known places, written with the system's own calls: MPI-IO adds a collective
 * opening that one rank's failure leaves the others in, limits of 2 GB, and locks on network file
 * systems, and buys nothing where each transfer is one contiguous run; and HDF5 cannot be called
 * by a thread while another reads tokens with it. Pieces of ranks on different nodes may share a
 * page: clients of network file systems keep track of the bytes that were written, where they hold
 * no older copy of it (part.c).
 *
 * Where a file system can go around its page cache (O_DIRECT), whole pages do: a save through the
 * cache takes eight times the processor's time, which async saves would take from the steps, and
 * then a read back would read memory, not the disk. Large tensors begin at whole pages (h5.c); a
 * piece's first and last bytes that fill no page go through the cache, and no page goes both ways.
 *
 * A transfer is at most TT_CKPT_CHUNK elements, far below any limit.
 *
 * Invariant: no call of MPI or HDF5, nothing allocated. Next: save.c. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tutti/base/file.h"
#include "tutti/base/narrow.h"
#include "tutti/numerics/digest.h"

#include "ckpt/ckpt_impl.h"

enum {
    FLOAT = sizeof(float),
    CHUNK = TT_CKPT_CHUNK * FLOAT, /* bytes that are moved at a time */
    /* Bytes after which the system is asked to begin writing what went through the cache: so it never
     * has much left when fsync comes, and a slow disk is seen to move. */
    BURST = 1 << 26
};

/* The .part, open both ways. */
typedef struct stream {
    tt_saving *s;
    int fd;       /* through the cache */
    int direct;   /* around it; -1: not here */
    int64_t from; /* what went through the cache since the system was last asked begins here, */
    int64_t to;   /* and ends here */
} stream;

static void moved(void *saving)
{
    tt_saving_moved(saving);
}

/* The .part, which rank 0 has made: network file systems may show it to others somewhat later.
 * Returns an error number. */
static int open_part(stream *io, tt_saving *s, int flags)
{
    *io = (stream){.s = s, .direct = -1};
    io->fd = tt_open_late(s->part, flags, moved, s);
    const int failed = io->fd < 0 ? errno : 0;
    if (failed == 0) {
        io->direct = tt_open(s->part, flags | O_DIRECT);
    }
    return failed;
}

static void leave_direct(stream *io)
{
    if (io->direct >= 0) {
        close(io->direct);
    }
    io->direct = -1;
}

/* The end of the chunk that begins at byte `at` of the file: a whole page's, unless it is `end`. */
static int64_t chunk_end(int64_t at, int64_t end)
{
    const int64_t most = at + CHUNK;
    return most >= end ? end : most / TT_PAGE * TT_PAGE;
}

/* --- write ---------------------------------------------------------------------------------------- */

/* Lets the disk begin with what went through the cache, and waits for what was before. File systems that
 * cannot do so leave it all to fsync. */
static int ask_disk(stream *out)
{
    const unsigned how = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE;
    int failed = 0;
    if (out->to > out->from) {
        failed = tt_sync_range(out->fd, out->from, out->to - out->from, how);
    }
    out->from = out->to;
    return failed == ESPIPE || failed == ENOSYS || failed == EINVAL || failed == EOPNOTSUPP
               ? 0
               : failed;
}

static int put_cached(stream *out, const unsigned char *data, int64_t bytes, int64_t at)
{
    int failed = 0;
    if (at != out->to) { /* what is between is not ours */
        failed = out->direct < 0 ? ask_disk(out) : 0;
        out->from = at;
    }
    failed = failed == 0 ? tt_pwrite_all(out->fd, data, bytes, at) : failed;
    out->to = at + bytes;
    return failed == 0 && out->to - out->from >= BURST ? ask_disk(out) : failed;
}

/* A chunk: data lies in its page as it will in the file's. */
static int put_chunk(stream *out, const unsigned char *data, int64_t bytes, int64_t at)
{
    const int64_t first = tt_min(at + bytes, tt_round_up(at, TT_PAGE));
    const int64_t last = tt_max(first, (at + bytes) / TT_PAGE * TT_PAGE);
    int failed = 0;
    if (out->direct >= 0 && last > first) {
        failed = tt_pwrite_all(out->direct, data + (first - at), last - first, first);
        if (failed == 0) {
            failed = put_cached(out, data, first - at, at);
            return failed != 0 ? failed
                               : put_cached(out, data + (last - at), at + bytes - last, last);
        }
        if (failed != EINVAL) {
            return failed;
        }
        leave_direct(out); /* it can be opened so and not written */
    }
    return put_cached(out, data, bytes, at);
}

static tt_code cannot_write(const tt_saving *s, const char *what, int why, tt_err *err)
{
    return tt_fail(err, TT_EWORLD, "cannot write %s to %s: %s", what, s->path, strerror(why));
}

/* The elements of a piece, by way of the buffer: from the snapshot, or from where they are. */
static tt_code write_piece(stream *out, int tensor, const tt_piece *piece, const float *room,
                           tt_err *err)
{
    tt_saving *s = out->s;
    tt_code rc = TT_OK;
    const int64_t begin = s->place[tensor] + tt_mul(piece->first, FLOAT);
    const int64_t end = begin + tt_mul(piece->count, FLOAT);
    const float *from = room != NULL ? room : piece->data;
    for (int64_t at = begin, next; at < end; at = next) {
        unsigned char *to = s->buffer + at % TT_PAGE;
        next = chunk_end(at, end);
        const int64_t done = (at - begin) / FLOAT, count = (next - at) / FLOAT;
        tt_saving_moved(s);
        if (room != NULL || piece->form.get == NULL) {
            memcpy(to, from + done, tt_size(next - at));
        } else {
            TT_TRY(piece->form.get(piece->form.owner, piece->at + done, count, (void *)to, err));
        }
        const int failed = put_chunk(out, to, next - at, at);
        if (failed != 0) {
            rc = cannot_write(s, s->state.tensor[tensor].name, failed, err);
            goto out;
        }
    }
out:
    return rc;
}

static tt_code write_pieces(stream *out, tt_err *err)
{
    tt_saving *s = out->s;
    tt_code rc = TT_OK;
    const float *room = s->how.room;
    for (int i = 0; i < s->state.tensors; i++) {
        const tt_tensor_row *row = &s->state.tensor[i];
        if (i == s->state.tensors / 2) {
            tt_fault_strike(s->how.fault, "mid_save", s->rank, s->how.step);
            if (tt_fault_due(s->how.fault, TT_FAULT_ENOSPC, s->rank, s->how.step)) {
                rc = cannot_write(s, row->name, ENOSPC, err);
                goto out;
            }
        }
        for (int p = 0; p < row->pieces; p++) {
            TT_TRY(write_piece(out, i, &row->piece[p], room, err));
            room += room != NULL ? row->piece[p].count : 0;
        }
    }
out:
    return rc;
}

tt_code tt_elements_write(tt_saving *s, tt_err *err)
{
    tt_code rc = TT_OK;
    stream out;
    int failed = open_part(&out, s, O_WRONLY);
    if (failed != 0) {
        return tt_fail(err, TT_EWORLD, "cannot open %s for writing: %s", s->path, strerror(failed));
    }
    TT_TRY(write_pieces(&out, err));
    tt_fault_strike(s->how.fault, "before_sync", s->rank, s->how.step);
    failed = ask_disk(&out);
    tt_saving_moved(s);
    /* Every rank: on a cluster each node has pages of its own to bring to the disk. */
    if (failed == 0 && tt_fsync(out.fd) != 0) {
        failed = errno;
    }
out:
    leave_direct(&out);
    /* Network file systems report at closing what they could not write. */
    if (close(out.fd) != 0 && failed == 0 && errno != EINTR) {
        failed = errno;
    }
    return rc != TT_OK || failed == 0 ? rc
                                      : tt_fail(err, TT_EWORLD, "cannot bring %s to the disk: %s",
                                                s->path, strerror(failed));
}

/* --- read back -------------------------------------------------------------------------------- */

/* At least `least` bytes, at most `most`. Returns an error number. */
static int get_all(int fd, unsigned char *data, int64_t least, int64_t most, int64_t at)
{
    for (int64_t done = 0; done < least;) {
        const int64_t got = tt_pread(fd, data + done, tt_size(most - done), at + done);
        if (got <= 0) {
            return got < 0 ? errno : EIO;
        }
        done += got;
    }
    return 0;
}

/* A chunk from the disk: whole pages around the cache, or through it, after the system was asked to
 * forget what it has of them. */
static int get_chunk(stream *in, unsigned char *to, int64_t bytes, int64_t at)
{
    const int64_t first = at / TT_PAGE * TT_PAGE, last = tt_round_up(at + bytes, TT_PAGE);
    if (in->direct >= 0) {
        const int failed =
            get_all(in->direct, to - (at - first), at + bytes - first, last - first, first);
        if (failed != EINVAL) {
            return failed;
        }
        leave_direct(in);
    }
    posix_fadvise(in->fd, first, last - first, POSIX_FADV_DONTNEED); /* where it can */
    return get_all(in->fd, to, bytes, bytes, at);
}

/* Adds the digest of elements [first, end) of a tensor to its sum. */
static tt_code look_at(stream *in, int tensor, int64_t first, int64_t end, tt_err *err)
{
    tt_saving *s = in->s;
    const int64_t place = s->place[tensor], stop = place + tt_mul(end, FLOAT);
    for (int64_t at = place + tt_mul(first, FLOAT), next; at < stop; at = next) {
        unsigned char *to = s->buffer + at % TT_PAGE;
        next = chunk_end(at, stop);
        tt_saving_moved(s);
        const int failed = get_chunk(in, to, next - at, at);
        if (failed != 0) {
            return tt_fail(err, TT_EWORLD, "cannot save %s: %s does not read back: %s", s->path,
                           s->state.tensor[tensor].name, strerror(failed));
        }
        s->sum[tensor] += tt_digest32(to, (at - place) / FLOAT, (next - at) / FLOAT);
    }
    return TT_OK;
}

/* All elements stand in one long row, and rank r looks at the stretch that rank r - 1 would write if
 * they were dealt out in order: where ranks have nodes of their own, what crossed the network is
 * seen. */
tt_code tt_elements_look(tt_saving *s, tt_err *err)
{
    tt_code rc = TT_OK;
    int64_t total = 0, start = 0;
    stream in;
    const int failed = open_part(&in, s, O_RDONLY);
    if (failed != 0) {
        return tt_fail(err, TT_EWORLD, "cannot save %s: it cannot be read back: %s", s->path,
                       strerror(failed));
    }
    for (int i = 0; i < s->state.tensors; i++) {
        total += tt_row_elements(&s->state.tensor[i]);
    }
    const int64_t share = tt_ceil_div(total, s->ranks);
    const int64_t mine = share * ((s->rank + s->ranks - 1) % s->ranks), end = mine + share;
    for (int i = 0; i < s->state.tensors; i++) {
        if (i == s->state.tensors / 2) {
            tt_fault_strike(s->how.fault, "mid_read_back", s->rank, s->how.step);
        }
        const int64_t count = tt_row_elements(&s->state.tensor[i]);
        const int64_t from = tt_max(mine - start, 0), to = tt_min(end - start, count);
        if (from < to) {
            TT_TRY(look_at(&in, i, from, to, err));
        }
        start += count;
    }
out:
    leave_direct(&in);
    close(in.fd);
    return rc;
}
