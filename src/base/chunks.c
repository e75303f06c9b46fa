/* chunks.c: slots, and the threads that fill and empty them. See chunks.h.
 *
 * A slot has a chunk and is to have one, the same or another. Where they differ, or a part is missing, a
 * thread takes the slot: it writes what was changed of the one and reads what is wanted of the other. A
 * chunk has one slot only, so its writes and reads can never overtake one another.
 *
 * Nobody who waits for a chunk or holds it loses it: users count as pins, and a slot with pins is not
 * promised to another chunk. A thread that has a pin waits for nothing, so all waiting ends.
 *
 * Everything in tt_chunks is under its lock, but the bytes of a slot: those are of whoever holds the
 * chunk, or of the thread that has the slot. */
#include "tutti/base/chunks.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/base/scratch.h"

enum { MOVERS = 2 }; /* threads: one reads while the other writes */

typedef struct slot {
    unsigned char *data;
    int64_t chunk, want;       /* what it has and what it is to have; -1: none */
    unsigned has, dirty, need; /* parts: has and dirty of `chunk`, need of `want` */
    int pins;                  /* users of `want` */
    bool moving;               /* a thread has it */
    uint64_t asked;            /* when, in requests */
} slot;

struct tt_chunks {
    tt_chunking chunking;
    int64_t offset[TT_CHUNK_PARTS + 1]; /* of parts in a chunk; the last: its end */
    tt_scratch file;
    pthread_mutex_t lock;
    pthread_cond_t work, done; /* a slot has work; a slot has changed */
    pthread_t mover[MOVERS];
    int movers; /* that were started */
    bool stop, spoilt;
    uint64_t requests;
    tt_err failed; /* the first failure; code TT_OK: none */
    slot slot[TT_CHUNK_SLOTS];
};

int64_t tt_chunking_chunk(const tt_chunking *c)
{
    int64_t bytes = 0;
    for (int i = 0; i < TT_CHUNK_PARTS; i++) {
        bytes += c->part[i];
    }
    return bytes;
}

int64_t tt_chunking_file(const tt_chunking *c)
{
    return tt_mul(c->count, tt_chunking_chunk(c));
}

size_t tt_chunking_memory(const tt_chunking *c)
{
    return tt_size(tt_mul(c->slots, tt_chunking_chunk(c)) + TT_SCRATCH_UNIT); /* to align them */
}

static slot *slot_of(tt_chunks *c, int64_t chunk)
{
    assert(chunk >= 0 && chunk < c->chunking.count);
    return &c->slot[chunk % c->chunking.slots];
}

/* --- threads that move ------------------------------------------------------------------------ */

static bool has_work(const slot *s)
{
    return !s->moving && s->want >= 0 && (s->want != s->chunk || (s->need & ~s->has) != 0);
}

/* The slot that has waited longest; NULL: there is no work. */
static slot *oldest(tt_chunks *c)
{
    slot *found = NULL;
    for (int i = 0; i < c->chunking.slots && c->failed.code == TT_OK; i++) {
        slot *s = &c->slot[i];
        if (has_work(s) && (found == NULL || s->asked < found->asked)) {
            found = s;
        }
    }
    return found;
}

/* These parts of a chunk between slot and file: neighbours in one transfer. */
static tt_code move_parts(const tt_chunks *c, bool write, int64_t chunk, unsigned parts,
                          unsigned char *data, tt_err *err)
{
    tt_code rc = TT_OK;
    const int64_t start = tt_mul(chunk, tt_chunking_chunk(&c->chunking));
    for (int i = 0, end; i < TT_CHUNK_PARTS && rc == TT_OK; i = end + 1) {
        for (end = i; end < TT_CHUNK_PARTS && (parts >> end & 1) != 0;) {
            end++;
        }
        const int64_t from = c->offset[i], bytes = c->offset[end] - from;
        if (bytes > 0) {
            rc = write ? tt_scratch_write(&c->file, data + from, bytes, start + from, err)
                       : tt_scratch_read(&c->file, data + from, bytes, start + from, err);
        }
    }
    return rc;
}

/* Makes the slot what it is to be. Holds the lock, save while bytes move. */
static void serve(tt_chunks *c, slot *s)
{
    tt_err err = {TT_OK, ""};
    const int64_t old = s->chunk, want = s->want;
    const unsigned write = old != want ? s->dirty : 0;
    const unsigned read = old != want ? s->need : s->need & ~s->has;
    s->moving = true;
    if (old != want) {
        s->chunk = -1;
        s->has = s->dirty = 0;
    }
    tt_code rc = c->spoilt ? tt_fail(&err, TT_EWORLD, "cannot use %s: it was spoilt on purpose",
                                     c->file.path)
                           : TT_OK;
    pthread_mutex_unlock(&c->lock);
    if (rc == TT_OK) {
        rc = move_parts(c, true, old, write, s->data, &err);
    }
    if (rc == TT_OK) {
        rc = move_parts(c, false, want, read, s->data, &err);
    }
    pthread_mutex_lock(&c->lock);
    s->moving = false;
    if (rc == TT_OK) {
        s->chunk = want;
        s->has |= read;
    } else if (c->failed.code == TT_OK) {
        c->failed = err;
    }
    pthread_cond_broadcast(&c->done);
}

static void *mover(void *chunks)
{
    tt_chunks *c = chunks;
    pthread_mutex_lock(&c->lock);
    while (!c->stop) {
        slot *s = oldest(c);
        if (s != NULL) {
            serve(c, s);
        } else {
            pthread_cond_wait(&c->work, &c->lock);
        }
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* --- users ------------------------------------------------------------------------------------ */

/* Promises the slot to a chunk. With the lock, and no pins for another. */
static void ask(tt_chunks *c, slot *s, int64_t chunk, unsigned parts)
{
    const unsigned known = s->want == chunk ? s->need : 0;
    if (s->want != chunk || (parts & ~known) != 0) {
        s->want = chunk;
        s->need = known | parts;
        s->asked = c->requests++;
    }
    if (has_work(s)) {
        pthread_cond_signal(&c->work);
    }
}

void tt_chunks_want(tt_chunks *c, int64_t chunk, unsigned parts)
{
    slot *s = slot_of(c, chunk);
    pthread_mutex_lock(&c->lock);
    if (s->want == chunk || s->pins == 0) {
        ask(c, s, chunk, parts);
    }
    pthread_mutex_unlock(&c->lock);
}

unsigned char *tt_chunks_hold(tt_chunks *c, int64_t chunk, unsigned parts)
{
    slot *s = slot_of(c, chunk);
    pthread_mutex_lock(&c->lock);
    while (s->want != chunk && s->pins > 0) {
        pthread_cond_wait(&c->done, &c->lock);
    }
    s->pins++;
    ask(c, s, chunk, parts);
    while (c->failed.code == TT_OK && (s->chunk != chunk || (parts & ~s->has) != 0)) {
        pthread_cond_wait(&c->done, &c->lock);
    }
    unsigned char *data = s->data;
    if (c->failed.code != TT_OK) {
        data = NULL;
        s->pins--;
        pthread_cond_broadcast(&c->done);
    }
    pthread_mutex_unlock(&c->lock);
    return data;
}

void tt_chunks_release(tt_chunks *c, int64_t chunk, unsigned changed, int64_t next)
{
    slot *s = slot_of(c, chunk);
    pthread_mutex_lock(&c->lock);
    assert(s->pins > 0 && s->want == chunk);
    s->dirty |= changed;
    s->pins--;
    if (next >= 0 && s->pins == 0) {
        assert(slot_of(c, next) == s);
        ask(c, s, next, TT_CHUNK_ALL);
    }
    pthread_cond_broadcast(&c->done);
    pthread_mutex_unlock(&c->lock);
}

/* Bytes that a walk along a part meets in one chunk. */
typedef struct run {
    int64_t chunk, bytes;
    size_t at; /* in the slot */
} run;

static run run_from(const tt_chunks *c, int part, int64_t first, int64_t bytes)
{
    const int64_t size = c->chunking.part[part], chunk = first / size, inside = first % size;
    return (run){chunk, tt_min(bytes, size - inside), tt_size(c->offset[part] + inside)};
}

void tt_chunks_get(tt_chunks *c, int part, int64_t first, int64_t bytes, void *out)
{
    unsigned char *to = out;
    for (run r; bytes > 0; first += r.bytes, to += r.bytes, bytes -= r.bytes) {
        r = run_from(c, part, first, bytes);
        const unsigned char *data = tt_chunks_hold(c, r.chunk, 1u << part);
        if (data == NULL) {
            memset(to, 0, tt_size(bytes));
            return;
        }
        if (r.chunk + 1 < c->chunking.count) { /* who reads on will want it */
            tt_chunks_want(c, r.chunk + 1, 1u << part);
        }
        memcpy(to, data + r.at, tt_size(r.bytes));
        tt_chunks_release(c, r.chunk, 0, -1);
    }
}

void tt_chunks_put(tt_chunks *c, int part, int64_t first, int64_t bytes, const void *in)
{
    const unsigned char *from = in;
    for (run r; bytes > 0; first += r.bytes, from += r.bytes, bytes -= r.bytes) {
        r = run_from(c, part, first, bytes);
        unsigned char *data = tt_chunks_hold(c, r.chunk, 1u << part);
        if (data == NULL) {
            return;
        }
        memcpy(data + r.at, from, tt_size(r.bytes));
        tt_chunks_release(c, r.chunk, 1u << part, -1);
    }
}

tt_code tt_chunks_check(tt_chunks *c, tt_err *err)
{
    pthread_mutex_lock(&c->lock);
    const tt_code rc = c->failed.code;
    if (rc != TT_OK) {
        *err = c->failed;
    }
    pthread_mutex_unlock(&c->lock);
    return rc;
}

void tt_chunks_spoil(tt_chunks *c)
{
    pthread_mutex_lock(&c->lock);
    c->spoilt = true;
    pthread_mutex_unlock(&c->lock);
}

bool tt_chunks_direct(const tt_chunks *c)
{
    return c->file.direct;
}

/* --- from open to close ----------------------------------------------------------------------- */

/* Signals are for the threads of the program. */
static int start_movers(tt_chunks *c)
{
    sigset_t all, before;
    int why = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (c->movers < MOVERS && why == 0) {
        why = pthread_create(&c->mover[c->movers], NULL, mover, c);
        c->movers += why == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return why;
}

tt_code tt_chunks_open(tt_chunks **chunks, const tt_chunking *chunking, const char *path,
                       bool direct, void *memory, tt_err *err)
{
    tt_code rc = TT_OK;
    const uintptr_t start = (uintptr_t)tt_round_up((int64_t)(uintptr_t)memory, TT_SCRATCH_UNIT);
    assert(chunking->count > 0 && chunking->slots > 0 && chunking->slots <= TT_CHUNK_SLOTS);
    tt_chunks *c = *chunks = tt_alloc(1, sizeof *c, err);
    if (c == NULL) {
        return err->code;
    }
    c->chunking = *chunking;
    for (int i = 0; i < TT_CHUNK_PARTS; i++) {
        assert(chunking->part[i] % TT_SCRATCH_UNIT == 0);
        c->offset[i + 1] = c->offset[i] + chunking->part[i];
    }
    for (int i = 0; i < chunking->slots; i++) {
        c->slot[i] = (slot){.data = (unsigned char *)start + tt_mul(i, tt_chunking_chunk(chunking)),
                            .chunk = -1,
                            .want = -1};
    }
    pthread_mutex_init(&c->lock, NULL); /* on Linux none of the three can fail */
    pthread_cond_init(&c->work, NULL);
    pthread_cond_init(&c->done, NULL);
    TT_TRY(tt_scratch_open(&c->file, path, tt_chunking_file(chunking), direct, err));
    const int why = start_movers(c);
    if (why != 0) {
        rc = tt_fail(err, TT_EWORLD, "cannot start a thread for %s: %s", path, strerror(why));
    }
out:
    if (rc != TT_OK) {
        tt_chunks_close(c);
        *chunks = NULL;
    }
    return rc;
}

void tt_chunks_close(tt_chunks *c)
{
    if (c == NULL) {
        return;
    }
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_cond_broadcast(&c->work);
    pthread_mutex_unlock(&c->lock);
    for (int i = 0; i < c->movers; i++) {
        pthread_join(c->mover[i], NULL);
    }
    tt_scratch_close(&c->file);
    pthread_cond_destroy(&c->done);
    pthread_cond_destroy(&c->work);
    pthread_mutex_destroy(&c->lock);
    free(c);
}
