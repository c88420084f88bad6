/* When launches may go, and what they take of the GPU's time. */
#ifndef PSG_COMPUTE_H
#define PSG_COMPUTE_H

#include "driver.h"
#include "lengths.h"

/* Returns once a launch of a function or a graph on a stream of a GPU may go, and counts it; to be followed by
 * psg_launched with what it returned. */
struct psg_measured psg_admit(int gpu, CUstream stream, const void *what);
void psg_launched(struct psg_measured measured, CUstream stream);

/* How many launches have been admitted on a GPU; what this says before the program waits, psg_seen_idle is told after: all
 * of a context have ended, or those of a stream where that is 0. */
uint64_t psg_admitted(int gpu);
void psg_seen_idle(int gpu, CUstream stream, uint64_t context, uint64_t admitted);

/* A stream of a GPU (-1: nobody can tell which), or a context (0: nobody can tell which), is about to be destroyed. */
void psg_stream_gone(int gpu, CUstream stream);
void psg_context_gone(uint64_t context);

#endif
