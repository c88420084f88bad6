/* When processes of the container had work on a GPU, for the agent to read. */
#ifndef PSG_INTERVALS_H
#define PSG_INTERVALS_H

#include "shim.h"

/* This process had work on a GPU between two times; the caller has the lock of that GPU's gate. */
void psg_note_interval(int gpu, uint64_t from, uint64_t to);

#endif
