/* Recordings of streams into graphs, and the questions that they forbid. */
#ifndef PSG_RECORD_H
#define PSG_RECORD_H

#include "driver.h"
#include "table.h"

/* Whether what is launched on a stream is recorded and not run. */
bool psg_recorded(CUstream stream);

/* Between these two, events and such streams as psg_may_ask allows may be asked whether they are done. Ask quickly, for a
 * recording that is about to begin waits. */
void psg_asking_begin(CUstreamCaptureMode *mode);
void psg_asking_end(CUstreamCaptureMode *mode);
bool psg_may_ask(CUstream stream);

/* Takes the recording of a stream that is about to be destroyed out of the table; false: it has none. It is over once the
 * stream is gone, and goes back into the table where the driver refused. */
bool psg_recording_take(CUstream stream, struct psg_entry *recording);
void psg_recording_over(const struct psg_entry *recording);

/* A context was destroyed, and with it the recordings of its streams. */
void psg_recordings_gone(uint64_t context);

#endif
