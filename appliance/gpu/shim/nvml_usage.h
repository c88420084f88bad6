/* How much of a GPU's memory is in use. */
#ifndef PSG_NVML_USAGE_H
#define PSG_NVML_USAGE_H

#include "shim.h"

/* The bytes that are in use on a GPU, by everybody; false: NVML is not there. */
bool psg_nvml_used(int gpu, uint64_t *bytes);

#endif
