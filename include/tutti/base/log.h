/* log.h: what a person reads. Rank 0 speaks for all; a clean run is quiet and says only true things.
 *
 * stdout carries results, stderr everything else. One tt_log lives in main and is handed down. */
#ifndef TUTTI_BASE_LOG_H
#define TUTTI_BASE_LOG_H

#include <stdbool.h>

typedef struct tt_log {
    int rank;    /* only rank 0 prints info and live lines; warnings carry the rank */
    int columns; /* of the terminal that stderr reaches, where live lines are redrawn; 0: none */
    bool live;   /* a live line is on the screen */
} tt_log;

tt_log tt_log_open(int rank);
void tt_info(tt_log *log, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void tt_warn(tt_log *log, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* On a terminal redraws one line; elsewhere prints nothing. tt_info and tt_warn end it first. */
void tt_live(tt_log *log, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void tt_live_end(tt_log *log);

#endif
