/* Recordings of streams into graphs, and the questions that they forbid. */
#ifndef PSG_RECORD_H
#define PSG_RECORD_H

#include <stdbool.h>

#include "driver.h"

/* Whether what is launched on a stream is recorded and not run. */
bool psg_recorded(CUstream stream);

/* Between these two, streams may be asked whether they are done; false: the program records one. Ask quickly, for a
 * recording that is about to begin waits. */
bool psg_asking_begin(CUstreamCaptureMode *mode);
void psg_asking_end(CUstreamCaptureMode *mode);

#endif
