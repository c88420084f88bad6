/* NVML as a process sees it. */
#ifndef PSG_NVML_VIEW_H
#define PSG_NVML_VIEW_H

#include <stdbool.h>

/* Calls `add_pair` with each function of NVML that we stand in front of, and what stands there; false: NVML is not loaded. */
bool psg_nvml_map(void (*add_pair)(void *real, void *wrapper));

/* What stands for a function of NVML that nobody here knows: itself where it only asks, else one that refuses. */
void *psg_nvml_unknown(void *found, const char *name);

#endif
