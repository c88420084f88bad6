/* Which GPU of the limits a device is. */
#ifndef PSG_DEVICE_H
#define PSG_DEVICE_H

#include "shim.h"

/* The GPU of a device, or of the context that is current; -1: not limited, or the driver itself is calling. */
int psg_gpu_of_device(int device);
int psg_gpu_here(uint64_t *context);
int psg_device_of_gpu(int gpu);

/* There is one green context more, or less: nobody looks for the owner of one where there is none. */
void psg_count_greens(int change);

#endif
