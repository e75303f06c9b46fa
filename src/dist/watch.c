/* watch.c: the thread that looks whether its rank makes progress. See watch.h.
 *
 * It wakes five times a second, notes whether the other thread has beaten, answers questions that have
 * come, and asks its own when it is time. No call of MPI that it makes waits for anybody: it probes
 * before it receives, and never waits for what it sends.
 *
 * Whether a rank is to blame is judged in one place, verdict(), from what each rank said of itself.
 *
 * Owns its communicator, its thread and its mail; next: world.c, which opens and closes. */
#include "tutti/dist/watch.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dist/dist_impl.h"
#include "tutti/base/clock.h"
#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"

enum { QUESTION = 1, ANSWER = 2 }; /* tags */
enum { HOST = 64, WORDS = 48 };    /* room for texts that travel, terminators included */

static const double period = 0.2; /* seconds between two looks */
static const double longest = 1;  /* that a look may count; more: the process was stopped */
static const double step = 2;     /* seconds that a binary digit of the rank adds before it asks */
static const double soon = 1;     /* seconds, at least, before the same rank asks again */
/* Seconds that the end of the job may take, that a launcher has to miss a node, that the start may
 * take */
enum { LEAVE = 10, AWAIT = 30, OPENING = 600 };

/* Of a rank: it has not answered, works, waits for others, or has found who is to blame. */
typedef enum state { SILENT, ELSEWHERE, WAITING, NAMED } state;

typedef struct answer {
    int32_t round; /* of the question */
    int32_t state;
    double age; /* seconds without a beat */
    char words[WORDS];
} answer;

/* Where a rank runs. */
typedef struct place {
    char host[HOST];
    int32_t node;
} place;

/* What goes to one rank, and must stay until it has gone. */
typedef struct mail {
    int32_t question; /* its round */
    answer answer;
    MPI_Request asked, answered;
} mail;

struct tt_watch {
    tt_pulse *pulse;
    int rank, size;
    MPI_Comm comm; /* own; MPI_COMM_NULL: it cannot ask */
    place *place;  /* [R] owned */
    mail *mail;    /* [R] owned */
    answer *heard; /* [R] owned: to the question under way */

    pthread_t thread;
    pthread_mutex_t mutex; /* of what follows, up to the next gap */
    pthread_cond_t wake;   /* either thread has news for the other */
    double timeout;        /* 0: looks on, and answers */
    bool stop, quiet, is_quiet;

    int64_t seen;    /* beats */
    double age;      /* seconds since the last */
    double patience; /* seconds since there was last a reason not to ask */
    bool asking;
    double asked; /* seconds ago */
    int32_t round;

    char sentence[512]; /* that ends the job */
    bool said;
    double ending; /* seconds that are left to this rank, which has named another; 0: it has not */
};

/* --- the thread that computes ----------------------------------------------------------------- */

void tt_beat(tt_world *world, const char *doing)
{
    if (world == NULL) {
        return;
    }
    world->pulse.beats++;
    world->pulse.waiting = NULL;
    if (doing != NULL) {
        world->pulse.doing = doing;
    }
}

const char *tt_wait_begin(tt_world *world, const char *call)
{
    const char *outer = NULL;
    if (world != NULL) {
        outer = world->pulse.waiting;
        world->pulse.beats++;
        world->pulse.waiting = call;
    }
    return outer;
}

void tt_wait_end(tt_world *world, const char *outer)
{
    tt_beat(world, NULL);
    if (world != NULL) {
        world->pulse.waiting = outer;
    }
}

void tt_watch_left(tt_world *world, const char *left)
{
    if (world != NULL) {
        world->pulse.left = left;
    }
}

/* --- the end of the job ----------------------------------------------------------------------- */

static void leave(int signal)
{
    (void)signal;
    _exit(TT_EWORLD);
}

/* Whatever may wait while the job is brought to its end, from a full pipe to MPI_Abort, waits LEAVE
 * seconds. */
static void leave_soon(void)
{
    sigset_t alarms;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    signal(SIGALRM, leave);
    pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
    alarm(LEAVE);
}

/* The sentence, once. Buffers of stdio are the other thread's: they are not touched. */
static void say(tt_watch *w)
{
    char line[1024];
    const char *left = w->pulse->left;
    if (w->said) {
        return;
    }
    w->said = true;
    int length = snprintf(line, sizeof line, "%stutti: %s%s%s\n", isatty(STDERR_FILENO) ? "\n" : "",
                          w->sentence, left != NULL ? "; " : "", left != NULL ? left : "");
    for (ssize_t done = 0, put; done < length; done += put) {
        put = write(STDERR_FILENO, line + done, (size_t)(length - done));
        if (put <= 0) {
            break;
        }
    }
}

static _Noreturn void end_job(tt_watch *w)
{
    leave_soon();
    say(w);
    if (!w->is_quiet && w->comm != MPI_COMM_NULL) {
        MPI_Abort(w->comm, TT_EWORLD);
    }
    _exit(TT_EWORLD);
}

/* Has some node no rank that answered? */
static bool out_of_reach(const tt_watch *w)
{
    bool all = true;
    for (int r = 0; r < w->size && all; r++) {
        bool answers = false;
        for (int near = 0; near < w->size && !answers; near++) {
            answers = w->place[near].node == w->place[r].node && w->heard[near].state != SILENT;
        }
        all = answers;
    }
    return !all;
}

/* There is a sentence: out, now or later. A rank that does not hear rank 0 may be the one that is
 * cut off, with a launcher's daemon that would hold on to words that it cannot deliver: it speaks
 * last. */
static void conclude(tt_watch *w)
{
    if (!w->asking || !out_of_reach(w)) {
        end_job(w);
    }
    if (w->heard[0].state != SILENT) {
        leave_soon();
        say(w);
        alarm(0);
    }
    w->ending = AWAIT;
}

static void give_up(int signal)
{
    static const char words[] =
        "tutti: the ranks have not come together for ten minutes: one of them is not here yet\n";
    (void)signal;
    const bool said = write(STDERR_FILENO, words, sizeof words - 1) > 0;
    (void)said; /* or not: what counts is the exit code */
    _exit(TT_EWORLD);
}

void tt_watch_opening(void)
{
    signal(SIGALRM, give_up);
    alarm(OPENING);
}

void tt_watch_opened(void)
{
    alarm(0);
    signal(SIGALRM, SIG_DFL);
}

/* --- what this rank says of itself ------------------------------------------------------------ */

static answer look(const tt_watch *w)
{
    const char *waiting = w->pulse->waiting, *doing = w->pulse->doing;
    answer own = {.state = waiting != NULL ? WAITING : ELSEWHERE, .age = w->age};
    snprintf(own.words, sizeof own.words, "%s", waiting != NULL ? waiting : doing);
    if (w->pulse->beats != w->seen) { /* just now */
        own.age = 0;
    }
    if (w->ending > 0) {
        own.state = NAMED;
    }
    return own;
}

/* Seconds after which a rank that has not answered is silent. */
static double grace(double timeout)
{
    return fmin(fmax(timeout / 10, 5), 60);
}

/* Seconds before the timeout at which this rank asks, so that one that is silent can be named when it is
 * up: half of it when it is short. */
static double lead(double timeout)
{
    return fmin(grace(timeout), timeout / 2);
}

/* --- the verdict ------------------------------------------------------------------------------ */

/* A rank waits "in " a call of MPI, or "for gradients". */
static const char *in_what(const char *words)
{
    return strncmp(words, "for ", 4) == 0 ? "" : "in ";
}

/* "rank 2 (host a) has made no progress for 31 s (dist.timeout is 30): it is <what>" */
static void blame(tt_watch *w, int rank, double age, double timeout, const char *what,
                  const char *words, int others, const char *likewise)
{
    char speaker[32] = "", more[64] = "";
    if (rank != w->rank) {
        snprintf(speaker, sizeof speaker, "rank %d: ", w->rank);
    }
    if (others > 0) {
        snprintf(more, sizeof more, ", and %d other rank%s %s", others, others > 1 ? "s" : "",
                 likewise);
    }
    snprintf(w->sentence, sizeof w->sentence,
             "%srank %d (host %s) has made no progress for %.0f s (dist.timeout is %g): it %s%s%s",
             speaker, rank, w->place[rank].host, age, timeout, what, words, more);
    conclude(w);
}

/* All wait. A rank that waits in another call than rank 0 is named beside it, else the last one. */
static void blame_all(tt_watch *w, double timeout)
{
    const answer *heard = w->heard;
    int other = w->size - 1;
    for (int r = w->size - 1; r > 0; r--) {
        other = strcmp(heard[r].words, heard[0].words) != 0 ? r : other;
    }
    snprintf(
        w->sentence, sizeof w->sentence,
        "rank %d: no rank has made progress for %.0f s (dist.timeout is %g): all wait for each "
        "other, rank 0 (host %s) %s%s, rank %d (host %s) %s%s; the network or the MPI "
        "library is stuck",
        w->rank, w->age, timeout, w->place[0].host, in_what(heard[0].words), heard[0].words, other,
        w->place[other].host, in_what(heard[other].words), heard[other].words);
    conclude(w);
}

/* From what all ranks said. Ends the job, or returns when nobody is to blame: the seconds until a rank
 * can be. Where another has named the one to blame, that one ends the job, unless it is lost as well. */
static double verdict(tt_watch *w, double timeout)
{
    bool named = false;
    int elsewhere = -1, elsewheres = 0, silent = -1, silents = 0;
    double most = -1; /* the greatest age of those that still have time */
    for (int r = w->size - 1; r >= 0; r--) {
        const answer *heard = &w->heard[r];
        if (heard->state == SILENT) {
            silent = r;
            silents++;
        } else if (heard->state == NAMED) {
            named = true;
        } else if (heard->age < timeout) {
            most = heard->age > most ? heard->age : most;
        } else if (heard->state == ELSEWHERE) {
            elsewhere = r;
            elsewheres++;
        }
    }
    if (named) {
        return grace(timeout);
    }
    if (elsewhere >= 0) {
        blame(w, elsewhere, w->heard[elsewhere].age, timeout, "is ", w->heard[elsewhere].words,
              elsewheres - 1, "made none either");
    } else if (silent >= 0) {
        blame(w, silent, w->age, timeout,
              "does not answer: ", "it is stopped, or its node or link is gone", silents - 1,
              "did not answer");
    } else if (most < 0) {
        blame_all(w, timeout);
    }
    return timeout - most;
}

/* --- mail ------------------------------------------------------------------------------------- */

/* Has what was sent last gone? Then its place is free. */
static bool gone(MPI_Request *request)
{
    int done = 0;
    return MPI_Test(request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done;
}

/* Takes a message of `bytes` bytes if there is one; its rank, or -1. */
static int take(const tt_watch *w, int tag, void *message, size_t bytes)
{
    MPI_Status status;
    int there = 0;
    const int room = tt_int(tt_count(bytes));
    if (MPI_Iprobe(MPI_ANY_SOURCE, tag, w->comm, &there, &status) != MPI_SUCCESS || !there ||
        MPI_Recv(message, room, MPI_BYTE, status.MPI_SOURCE, tag, w->comm, MPI_STATUS_IGNORE) !=
            MPI_SUCCESS) {
        return -1;
    }
    return status.MPI_SOURCE;
}

static void send(const tt_watch *w, int to, int tag, const void *message, size_t bytes,
                 MPI_Request *request)
{
    /* A message that cannot be sent is one that is not answered. */
    if (MPI_Isend(message, tt_int(tt_count(bytes)), MPI_BYTE, to, tag, w->comm, request) !=
        MPI_SUCCESS) {
        *request = MPI_REQUEST_NULL;
    }
}

static void answer_questions(tt_watch *w)
{
    int32_t round;
    for (int from; (from = take(w, QUESTION, &round, sizeof round)) >= 0;) {
        mail *m = &w->mail[from];
        if (from < w->rank) { /* it is being looked after */
            w->patience = 0;
        }
        if (gone(&m->answered)) {
            m->answer = look(w);
            m->answer.round = round;
            send(w, from, ANSWER, &m->answer, sizeof m->answer, &m->answered);
        }
    }
}

static void hear_answers(tt_watch *w)
{
    answer a;
    for (int from; (from = take(w, ANSWER, &a, sizeof a)) >= 0;) {
        if (a.round == w->round) {
            w->heard[from] = a;
        }
    }
}

static bool all_answered(const tt_watch *w)
{
    for (int r = 0; r < w->size; r++) {
        if (w->heard[r].state == SILENT) {
            return false;
        }
    }
    return true;
}

static void ask(tt_watch *w)
{
    w->asking = true;
    w->asked = 0;
    w->round++;
    for (int r = 0; r < w->size; r++) {
        mail *m = &w->mail[r];
        w->heard[r] = r == w->rank ? look(w) : (answer){.state = SILENT};
        if (r != w->rank && gone(&m->asked)) {
            m->question = w->round;
            send(w, r, QUESTION, &m->question, sizeof m->question, &m->asked);
        }
    }
}

/* --- the watch -------------------------------------------------------------------------------- */

/* Seconds more after which this rank asks: 0, 2, 4, 4, 6, 6, 6, 6, 8, ... */
static double turn(int rank)
{
    double seconds = 0;
    for (int rest = rank; rest > 0; rest /= 2) {
        seconds += step;
    }
    return seconds;
}

static void note_beats(tt_watch *w, double seconds)
{
    const int64_t beats = w->pulse->beats;
    w->age += seconds;
    w->patience += seconds;
    if (beats != w->seen) {
        w->seen = beats;
        w->age = w->patience = 0;
        w->asking = false;
    }
}

/* One look. */
static void tick(tt_watch *w, double seconds, double timeout, bool asks)
{
    note_beats(w, seconds);
    if (asks) {
        answer_questions(w);
        hear_answers(w);
    }
    if (w->ending > 0) { /* a beat: what was out of reach is back, and ends with the rest */
        w->ending = w->age == 0 || !asks ? 0 : fmax(w->ending - seconds, 0);
        if (w->ending == 0) {
            end_job(w);
        }
        return;
    }
    const answer own = look(w);
    const double early = asks ? timeout - lead(timeout) : timeout;
    const bool late = timeout > 0 && own.age >= early;
    if (late && !asks) {
        w->asking = false;
        char what[16] = "is ";
        if (own.state == WAITING) {
            snprintf(what, sizeof what, "waits %s", in_what(own.words));
        }
        blame(w, w->rank, own.age, timeout, what, own.words, 0, "");
    } else if (late && w->asking) {
        w->asked += seconds;
        if (all_answered(w) || w->asked >= grace(timeout)) {
            w->patience = early + turn(w->rank) - fmax(verdict(w, timeout), soon);
            w->asking = false;
        }
    } else if (late && w->patience >= early + turn(w->rank)) {
        ask(w);
    }
}

/* Until the next look is due, or there is news. The mutex is held. */
static void rest(tt_watch *w)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const int64_t at = until.tv_nsec + (int64_t)(period * 1e9);
    until.tv_sec += at / 1000000000;
    until.tv_nsec = at % 1000000000;
    pthread_cond_timedwait(&w->wake, &w->mutex, &until);
}

static void *run(void *argument)
{
    tt_watch *w = argument;
    double last = tt_seconds();
    pthread_mutex_lock(&w->mutex);
    while (!w->stop) {
        rest(w);
        if (w->quiet != w->is_quiet) {
            w->is_quiet = w->quiet;
            pthread_cond_broadcast(&w->wake);
        }
        const double now = tt_seconds(), timeout = w->timeout;
        const bool asks = !w->is_quiet && w->comm != MPI_COMM_NULL;
        if (w->stop) {
            break;
        }
        pthread_mutex_unlock(&w->mutex);
        tick(w, fmin(now - last, longest), timeout, asks);
        last = now;
        pthread_mutex_lock(&w->mutex);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

/* --- opening and closing ---------------------------------------------------------------------- */

static void watch_free(tt_watch *w)
{
    if (w->comm != MPI_COMM_NULL) {
        MPI_Comm_free(&w->comm);
    }
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->mutex);
    free(w->place);
    free(w->mail);
    free(w->heard);
    free(w);
}

/* A mutex, and a condition by a clock that nobody sets. */
static void make_locks(tt_watch *w)
{
    pthread_condattr_t clock;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &clock);
    pthread_condattr_destroy(&clock);
}

/* Memory, the hosts' names, and where watches talk to each other a communicator. Collective. */
static tt_code make(tt_world *world, tt_watch **made, tt_err *err)
{
    tt_code rc = TT_OK;
    const int R = world->size;
    tt_watch *w = tt_alloc(1, sizeof *w, err);
    if (w != NULL) {
        *w = (tt_watch){.rank = world->rank, .size = R, .comm = MPI_COMM_NULL};
        make_locks(w);
        w->pulse = &world->pulse;
        w->place = tt_alloc(R, sizeof *w->place, err);
        w->mail = w->place != NULL ? tt_alloc(R, sizeof *w->mail, err) : NULL;
        w->heard = w->mail != NULL ? tt_alloc(R, sizeof *w->heard, err) : NULL;
    }
    TT_TRY(tt_agree(world, w != NULL && w->heard != NULL ? TT_OK : err->code, err));
    place *here = &w->place[w->rank];
    here->node = world->node;
    if (gethostname(here->host, HOST) != 0) {
        snprintf(here->host, HOST, "unknown");
    }
    here->host[HOST - 1] = '\0';
    for (int r = 0; r < R; r++) {
        w->mail[r] = (mail){.asked = MPI_REQUEST_NULL, .answered = MPI_REQUEST_NULL};
    }
    if (tt_alone(world)) {
        goto out;
    }
    TT_TRY(tt_mpi_check(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, w->place,
                                      (int)sizeof *w->place, MPI_BYTE, tt_world_comm(world)),
                        "MPI_Allgather", err));
    if (tt_world_threaded(world)) {
        TT_TRY(tt_mpi_check(MPI_Comm_dup(tt_world_comm(world), &w->comm), "MPI_Comm_dup", err));
        TT_TRY(tt_mpi_check(MPI_Comm_set_errhandler(w->comm, MPI_ERRORS_RETURN),
                            "MPI_Comm_set_errhandler", err));
    }
out:
    if (rc != TT_OK && w != NULL) {
        watch_free(w);
        w = NULL;
    }
    *made = w;
    return rc;
}

/* The thread takes no signal: those that stop a run are the other's. Local. */
static tt_code start(tt_watch *w, tt_err *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int why = pthread_create(&w->thread, NULL, run, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return why == 0 ? TT_OK
                    : tt_fail(err, TT_EWORLD,
                              "cannot start the thread that watches a rank's progress: %s "
                              "(dist.timeout=0 does without it)",
                              strerror(why));
}

static void stop(tt_watch *w)
{
    pthread_mutex_lock(&w->mutex);
    w->stop = true;
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->mutex);
    pthread_join(w->thread, NULL);
}

static void set_timeout(tt_watch *w, double timeout)
{
    pthread_mutex_lock(&w->mutex);
    w->timeout = timeout;
    pthread_mutex_unlock(&w->mutex);
}

tt_code tt_watch_open(tt_world *world, double timeout, tt_log *log, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_watch *w = NULL;
    double most = timeout; /* a rank that does not judge still answers those that do */
    tt_watch_opening();
    tt_beat(world, "starting");
    TT_TRY(tt_max_f64(world, &most, 1, err));
    if (world->watch == NULL && most > 0) {
        TT_TRY(make(world, &w, err));
        const tt_code own = start(w, err);
        rc = tt_agree(world, own, err);
        if (rc != TT_OK) {
            if (own == TT_OK) {
                stop(w);
            }
            watch_free(w);
            goto out;
        }
        world->watch = w;
    }
    if (world->watch != NULL) {
        set_timeout(world->watch, timeout);
    }
    if (timeout > 0 && world->size > 1 && !tt_world_threaded(world) && world->rank == 0) {
        tt_warn(log,
                "this MPI library allows no calls from several threads: a rank that has waited "
                "for dist.timeout ends the job without asking the others, even if one of them "
                "is only slow");
    }
out:
    tt_watch_opened();
    return rc;
}

static void forget(MPI_Request *request)
{
    if (*request != MPI_REQUEST_NULL) {
        MPI_Request_free(request);
    }
}

void tt_watch_quiet(tt_world *world)
{
    tt_watch *w = world->watch;
    if (w == NULL) {
        return;
    }
    pthread_mutex_lock(&w->mutex);
    w->quiet = true;
    pthread_cond_broadcast(&w->wake);
    while (!w->is_quiet) {
        pthread_cond_wait(&w->wake, &w->mutex);
    }
    for (int r = 0; r < w->size; r++) { /* what has not gone by now may go, or not */
        forget(&w->mail[r].asked);
        forget(&w->mail[r].answered);
    }
    if (w->comm != MPI_COMM_NULL) {
        MPI_Comm_free(&w->comm);
    }
    pthread_mutex_unlock(&w->mutex);
}

void tt_watch_close(tt_world *world)
{
    tt_watch *w = world->watch;
    if (w != NULL) {
        stop(w);
        watch_free(w);
        world->watch = NULL;
    }
}
