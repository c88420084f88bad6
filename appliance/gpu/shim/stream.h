/* Where the work of a stream runs. */
#ifndef PSG_STREAM_H
#define PSG_STREAM_H

#include "shim.h"

/* The device, or the GPU, on which the work of a stream runs, and the context that it goes with; -1, or 0: nobody can tell.
 * No GPU is told where it is not limited, or where the driver itself is calling. */
int psg_device_of_stream(void *stream);
int psg_gpu_of_stream(void *stream);
uint64_t psg_context_of_stream(void *stream);

/* Makes the context of a stream current until the next one is popped; false: nobody can tell it, and nothing has changed. */
bool psg_enter_context_of_stream(void *stream);

#endif
