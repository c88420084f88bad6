/* Processes, as /proc shows them. */
#ifndef PSG_PROCESS_H
#define PSG_PROCESS_H

#include "shim.h"

/* When this process started, in clock ticks after boot; 0: unknown. */
uint64_t psg_started(void);

/* A process that is killed loses its mappings, and so its lock, a moment before the driver takes back its memory. One that
 * has begun another program has lost both. */
bool psg_still_dying(uint32_t pid, uint64_t start);

#endif
