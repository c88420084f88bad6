/* The gate that every launch passes. */
#ifndef PSG_ADMIT_H
#define PSG_ADMIT_H

#include "driver.h"

/* Returns once a launch on a stream of a GPU may go, and counts it. */
void psg_admit(int gpu, CUstream stream);

#endif
