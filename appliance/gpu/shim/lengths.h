/* How long launches take: each function by the size of its grid and each executable graph by itself, learned from pairs of events around some of
 * its launches. */
#ifndef PSG_LENGTHS_H
#define PSG_LENGTHS_H

#include "driver.h"

/* What is launched is named by its function and by the size of its grid, on which its length depends, or by its executable graph:
 * each name is a pointer that nobody follows. */
static inline const void *psg_sized(CUfunction function, uint64_t blocks)
{
    return (const void *)((uintptr_t)function ^ (uintptr_t)(blocks ? 64 - __builtin_clzll(blocks) : 0) << 56);
}

/* What a launch of a function or a graph takes, in ns, as far as it is known; 0: it is not. */
uint64_t psg_length(const void *what);

/* Learns that a launch has taken so long. */
void psg_learn_length(const void *what, uint64_t ns);

/* A launch that is measured, or not: `pair` is -1 then. */
struct psg_measured {
    int gpu;
    int pair;
};

/* Before and after a launch on a stream of a GPU: records an event where one is worth while. One that is not `alone` has other
 * streams beside it, and says no more than how long it takes at most. */
struct psg_measured psg_measure_begin(int gpu, CUstream stream, const void *what, bool alone);
void psg_measure_end(struct psg_measured measured, CUstream stream);

/* Reads the events of launches of a GPU that have ended, learns from them, and returns by how much they took longer, or shorter,
 * than was known before, in ns. What was waited for in vain (`overdue`) makes nothing that is known longer. */
int64_t psg_measures_read(int gpu, bool overdue);

/* A context (0: nobody can tell which) is about to be destroyed: its events go. */
void psg_measures_gone(uint64_t context);

#endif
