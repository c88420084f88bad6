/* Which GPU of the limits a device is. */
#ifndef PSG_DEVICE_H
#define PSG_DEVICE_H

#include "driver.h"

/* The GPU of a device, or of the context that is current; -1: not limited, or the driver itself is calling. */
int psg_gpu_of_device(int device);
int psg_gpu_here(uint64_t *context);
int psg_device_of_gpu(int gpu);

/* The GPU from which memory of a type in a place is taken; -1: none, or one that is not limited. Managed memory without a
 * place of its own goes where it is used: it is charged to the GPU of the context that is current, or the first one. */
int psg_gpu_of_memory(CUmemAllocationType type, const CUmemLocation *place);

/* There is one green context more, or less: nobody looks for the owner of one where there is none. */
void psg_count_greens(int change);

#endif
