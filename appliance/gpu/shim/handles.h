/* Physical memory apart from its addresses. */
#ifndef PSG_HANDLES_H
#define PSG_HANDLES_H

#include "shim.h"

/* A sparse array has gone, and so has what was mapped to it. */
void psg_parts_gone(uint64_t array);

#endif
