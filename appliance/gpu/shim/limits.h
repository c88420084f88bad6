/* The limits of this container, as the agent writes them. */
#ifndef PSG_LIMITS_H
#define PSG_LIMITS_H

#include "shim.h"

/* Whether this process stands under limits at all, as it was found when CUDA or NVML was first asked for; looking again
 * finds limits that have come since. */
bool psg_limited(void);
void psg_look_for_limits(void);

/* Whether it stands under limits that can be read. */
bool psg_limits_readable(void);

/* The number of the GPU with this UUID, whatever its prefix; -1: no limit for it. */
int psg_gpu_of_uuid(const char *text);
const char *psg_uuid_of_gpu(int gpu);
uint32_t psg_gpus(void);
uint64_t psg_memory_limit(int gpu);

/* Bytes that the container holds beyond its account. */
uint64_t psg_uncounted(int gpu);

/* Time that the container counted as its own and lost to others, in all. */
int64_t psg_lost(int gpu);

/* So much of what is owed to the container is forgotten, in all; what goes down is forgotten of its debt. */
int64_t psg_forgotten(int gpu);
uint32_t psg_compute_mode(int gpu);

/* The timetable of a GPU that is valid at a time; false: there is none. */
bool psg_timetable(int gpu, uint64_t now, struct psg_timetable *found, uint64_t *changes_ns);

/* Where the account stands beside the limits. */
const char *psg_account_path(void);

/* Tells the user something on stderr. */
void psg_say(const char *text);

#endif
