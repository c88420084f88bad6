/* When launches may go, and what they take of the GPU's time. */
#ifndef PSG_COMPUTE_H
#define PSG_COMPUTE_H

#include "driver.h"

/* Returns once a launch on a stream of a GPU may go, and counts it. */
void psg_admit(int gpu, CUstream stream);

/* All streams of a context are about to be destroyed. */
void psg_streams_gone(void);

#endif
