/* When launches may go, and what they take of the GPU's time. */
#ifndef PSG_COMPUTE_H
#define PSG_COMPUTE_H

#include "driver.h"
#include "lengths.h"

/* Returns once a launch of a function or a graph on a stream of a GPU may go, and counts it; to be followed by
 * psg_launched with what it returned. */
struct psg_measured psg_admit(int gpu, CUstream stream, const void *what);
void psg_launched(struct psg_measured measured, CUstream stream);

#endif
