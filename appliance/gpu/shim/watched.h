/* The streams on which something is pending. */
#ifndef PSG_WATCHED_H
#define PSG_WATCHED_H

#include <stdatomic.h>

#include "driver.h"

enum { PSG_STREAMS = 64 };

/* A default stream has one handle in all contexts, and that which a thread has of its own in all threads as well; each has a
 * name of its own here. */
struct psg_watched {
    CUstream stream;
    uint64_t name;
    uint64_t context; /* that it goes with */
};

/* `only` may be read without the lock of the gate that this belongs to. */
struct psg_streams {
    struct psg_watched watched[PSG_STREAMS];
    unsigned count;
    _Atomic(uint64_t) only; /* names the only stream; 0: there is none, or several */
};

bool psg_is_watched(const struct psg_streams *streams, CUstream stream);
bool psg_has_room(const struct psg_streams *streams, CUstream stream);
bool psg_is_only(const struct psg_streams *streams, CUstream stream);

void psg_watch(struct psg_streams *streams, CUstream stream);
void psg_unwatch(struct psg_streams *streams, CUstream stream);
void psg_watch_none(struct psg_streams *streams);

/* Streams of a context (0: of any): whether there are some, whether there are no others, and an end to watching them. */
bool psg_any_is_of(const struct psg_streams *streams, uint64_t context);
bool psg_all_are_of(const struct psg_streams *streams, uint64_t context);
void psg_unwatch_of(struct psg_streams *streams, uint64_t context);

/* Whether one of them is busy; false: nobody can ask, for the program records and one is a default stream, or one is another
 * thread's own. */
bool psg_ask_streams(const struct psg_streams *streams, bool *busy);

/* Waits for those that are idle and watches them no longer: what they have freed is the driver's only when somebody has waited,
 * even if nothing is left to wait for. Tells whether there was one. */
bool psg_settle_streams(struct psg_streams *streams);

#endif
