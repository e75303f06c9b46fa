/* agree.c: a rank never decides alone (decision 11 of the design).
 *
 * Both agreements are cheap when all is well: one allreduce of a few bytes. Only when ranks differ
 * is anything longer sent, and then every rank takes the same turns, because every turn follows
 * from a value that was just made equal on all ranks.
 *
 * Writes tt_err; next: world.c. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dist/dist_impl.h"
#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/numerics/digest.h"

/* The lowest rank for which `mine` is true, world->size when there is none. Collective. */
static tt_code first_rank(tt_world *world, bool mine, int *first, tt_err *err)
{
    *first = mine ? world->rank : world->size;
    return tt_allreduce(world, first, 1, sizeof *first, MPI_INT, MPI_MIN, err);
}

tt_code tt_agree(tt_world *world, tt_code own, tt_err *err)
{
    if (tt_alone(world)) {
        return own;
    }
    assert(own == TT_OK || own == err->code);
    tt_code rc = TT_OK;
    tt_err wire = {0}; /* what the agreement itself may fail with */
    tt_err first = {0};
    int speaker, other;
    TT_TRY(first_rank(world, own != TT_OK, &speaker, &wire));
    if (speaker == world->size) {
        return TT_OK;
    }
    if (speaker == world->rank) {
        first = *err;
    }
    TT_TRY(tt_bcast(world, &first, sizeof first, speaker, &wire));
    bool alike = own == first.code && strcmp(err->text, first.text) == 0;
    TT_TRY(first_rank(world, !alike, &other, &wire));
    if (other == world->size) {
        return own; /* all failed alike: one sentence, nobody's in particular */
    }
    return tt_fail(err, first.code, "rank %d: %s", speaker, first.text);
out:
    /* The world is broken. What went wrong on this rank says more than that. */
    return own != TT_OK ? own : tt_fail(err, rc, "%s", wire.text);
}

/* One line of a text, and where it stands in it. */
typedef struct line {
    const char *section; /* the last unindented line above that ends in ':', without it */
    int section_length;
    const char *text; /* without the white space around it */
    int length;
    bool present; /* false: the text ended before this line */
} line;

enum { SHOWN = 200 }; /* characters of a line or a section that a sentence quotes */

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Line `number` (from 0) of the text. */
static line line_at(const char *text, int64_t number)
{
    line found = {.section = ""};
    for (int64_t i = 0; *text != '\0'; i++) {
        const char *end = text + strcspn(text, "\n");
        const char *first = text, *last = end;
        while (first < last && blank(*first)) {
            first++;
        }
        while (last > first && blank(last[-1])) {
            last--;
        }
        if (first == text && last > first) { /* not indented: ends the section above */
            bool opens = i < number && last[-1] == ':';
            found.section = first;
            found.section_length = opens ? (int)tt_min(last - first - 1, SHOWN) : 0;
        }
        if (i == number) {
            found.text = first;
            found.length = (int)tt_min(last - first, SHOWN);
            found.present = true;
            break;
        }
        text = *end == '\n' ? end + 1 : end;
    }
    return found;
}

/* The number of the first line in which two different texts differ. */
static int64_t first_difference(const char *a, const char *b)
{
    int64_t number = 0;
    for (; *a != '\0' && *a == *b; a++, b++) {
        number += *a == '\n';
    }
    return number;
}

/* Fills err with the sentence for two different texts. */
static tt_code say_difference(const char *what, const char *text0, int rank, const char *text,
                              tt_err *err)
{
    int64_t number = first_difference(text0, text);
    line l[2] = {line_at(text0, number), line_at(text, number)};
    char shown[2][2 * SHOWN + 16];
    for (int i = 0; i < 2; i++) {
        if (l[i].present) {
            snprintf(shown[i], sizeof shown[i], "\"%.*s%s%.*s\"", l[i].section_length, l[i].section,
                     l[i].section_length > 0 ? "." : "", l[i].length, l[i].text);
        } else {
            snprintf(shown[i], sizeof shown[i], "no line %lld", (long long)number + 1);
        }
    }
    bool same = strcmp(shown[0], shown[1]) == 0;
    return tt_fail(err, TT_EUSER, "%s differs between ranks: rank 0 has %s, rank %d has %s%s", what,
                   shown[0], rank, shown[1],
                   same ? " (they differ in white space, or further along the line)" : "");
}

tt_code tt_agree_text(tt_world *world, const char *what, const char *text, tt_err *err)
{
    if (tt_alone(world)) {
        return TT_OK;
    }
    tt_code rc = TT_OK;
    char *text0 = NULL; /* rank 0's text, on every rank */
    tt_err sentence = {0};
    int64_t length = tt_count(strlen(text));
    uint64_t digest = tt_digest_bytes(text, length);
    /* min(d) and min(~d) = ~max(d): equal digests everywhere when these are each other's complement */
    uint64_t range[2] = {digest, ~digest};
    TT_TRY(tt_allreduce(world, range, 2, sizeof range[0], MPI_UINT64_T, MPI_MIN, err));
    if (range[0] == ~range[1]) {
        goto out;
    }

    TT_TRY(tt_bcast(world, &length, sizeof length, 0, err));
    text0 = tt_alloc(length + 1, 1, err);
    TT_TRY(tt_agree(world, text0 != NULL ? TT_OK : err->code, err));
    if (world->rank == 0) {
        memcpy(text0, text, tt_size(length));
    }
    TT_TRY(tt_bcast(world, text0, tt_size(length), 0, err));
    int other;
    TT_TRY(first_rank(world, strcmp(text0, text) != 0, &other, err));
    assert(other < world->size); /* digests that differ come from texts that differ */
    if (other == world->rank) {
        say_difference(what, text0, world->rank, text, &sentence);
    }
    TT_TRY(tt_bcast(world, &sentence, sizeof sentence, other, err));
    *err = sentence;
    rc = sentence.code;
out:
    free(text0);
    return rc;
}
