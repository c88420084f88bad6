/* The streams on which something is pending. */
#ifndef PSG_WATCHED_H
#define PSG_WATCHED_H

#include <stdatomic.h>

#include "driver.h"

enum { PSG_STREAMS = 64 };

/* `only` may be read without the lock of the gate that this belongs to. */
struct psg_streams {
    CUstream streams[PSG_STREAMS];
    uint64_t names[PSG_STREAMS]; /* the stream that a thread has of its own has the same handle in all of them */
    unsigned count;
    _Atomic(uint64_t) only; /* names the only stream; 0: there is none, or several */
};

bool psg_is_watched(const struct psg_streams *streams, CUstream stream);
bool psg_has_room(const struct psg_streams *streams, CUstream stream);
bool psg_is_only(const struct psg_streams *streams, CUstream stream);

void psg_watch(struct psg_streams *streams, CUstream stream);
void psg_unwatch(struct psg_streams *streams, CUstream stream);
void psg_watch_none(struct psg_streams *streams);

/* Whether one of them is busy; false: nobody can ask, for the program records a stream, or one is another thread's own. */
bool psg_ask_streams(const struct psg_streams *streams, bool *busy);

#endif
