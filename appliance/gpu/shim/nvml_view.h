/* NVML as a process sees it. */
#ifndef PSG_NVML_VIEW_H
#define PSG_NVML_VIEW_H

#include <stdbool.h>

/* Calls `add` with each function of NVML that we stand in front of, and what stands there; false: NVML is not loaded. */
bool psg_nvml_map(void (*add)(void *real, void *wrapper));

#endif
