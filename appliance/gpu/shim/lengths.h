/* How long launches take: each function and each executable graph by itself, learned from pairs of events around some of
 * its launches. */
#ifndef PSG_LENGTHS_H
#define PSG_LENGTHS_H

#include "driver.h"

/* What a launch of a function or a graph takes, in ns, as far as it is known; 0: it is not. */
uint64_t psg_length(const void *what);

/* Learns that a launch has taken so long. */
void psg_learn_length(const void *what, uint64_t ns);

/* A launch that is measured, or not: `pair` is -1 then. */
struct psg_measured {
    int gpu;
    int pair;
};

/* When a launch goes: while the sharer has the GPU to itself, as the first since its turn came, which may have to wait behind
 * what others still do, or in a time that is not its own. */
enum psg_turn { PSG_WITHIN, PSG_FIRST, PSG_BESIDE };

/* Before and after a launch on a stream of a GPU, which begins at `from`: records an event where one is worth while. */
struct psg_measured psg_measure_begin(int gpu, CUstream stream, const void *what, uint64_t from, enum psg_turn turn);
void psg_measure_end(struct psg_measured measured, CUstream stream);

/* Time in which a launch waited behind the work of others, from its beginning on. */
struct psg_delay {
    uint64_t from, ns;
};

/* Reads the events of launches of a GPU that have ended, learns from them, and returns how long the first one was delayed;
 * zeros: it was not, or is not known yet. */
struct psg_delay psg_measures_read(int gpu);

/* A context (0: nobody can tell which) is about to be destroyed: its events go. */
void psg_measures_gone(uint64_t context);

#endif
