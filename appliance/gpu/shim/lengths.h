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

/* When a launch goes: while the sharer has the GPU to itself, as the first since its turn came, which may have to wait behind
 * what others still do, or in a time that is not its own; or while the sharer itself works on other streams, of which it says
 * no more than how long it takes at most. */
enum psg_turn { PSG_WITHIN, PSG_FIRST, PSG_BESIDE, PSG_AMONG };

/* Before and after a launch on a stream of a GPU, which begins at `from`: records an event where one is worth while. */
struct psg_measured psg_measure_begin(int gpu, CUstream stream, const void *what, uint64_t from, enum psg_turn turn);
void psg_measure_end(struct psg_measured measured, CUstream stream);

/* Time in which a launch waited behind the work of others, from its beginning on; and by how much all others took longer, or
 * shorter, than was known before. */
struct psg_delay {
    uint64_t from, ns;
    int64_t longer;
};

/* Reads the events of launches of a GPU that have ended, learns from them, and returns how long the first one was delayed;
 * zeros: it was not, or is not known yet. What was waited for in vain (`overdue`) makes nothing that is known longer. */
struct psg_delay psg_measures_read(int gpu, bool overdue);

/* A context (0: nobody can tell which) is about to be destroyed: its events go. */
void psg_measures_gone(uint64_t context);

#endif
