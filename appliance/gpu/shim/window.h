/* When the processes of a container may launch work on a GPU. */
#ifndef PSG_WINDOW_H
#define PSG_WINDOW_H

#include "shim.h"

uint64_t psg_now(void);

/* Sleeps until a time, or shorter where a signal comes. */
void psg_sleep_until(uint64_t time);

/* A time in which launches may go. */
struct psg_window {
    uint64_t opened, until; /* 0: there is none */
    bool planned;           /* by a timetable */
    bool extra;             /* outside of the container's own, for what neighbours took from those */
};

/* The window that is open now; false: none, and the time at which to ask again. Windows that end at `used` or before are
 * over. Debt of the container is paid by opening later; `usual` is how long the launch takes that wants to go. */
bool psg_open_window(int gpu, uint64_t now, uint64_t used, uint64_t usual, struct psg_window *window, uint64_t *again);

/* Counts work of a container on a GPU between two times that was let go in a window. What lies behind its end and in no other
 * window of the container is debt. */
void psg_worked(int gpu, uint64_t from, uint64_t to, const struct psg_window *window);

/* Work that began at a time has not ended: notes it for the agent to tell where it may never do so. Whoever waits behind such
 * work says this again and again. */
void psg_works_on(int gpu, uint64_t from, uint64_t now);

/* A window that ended early, because what is launched takes longer than what was left. */
void psg_left_over(int gpu, uint64_t at, uint64_t end, uint64_t most);

/* The container begins to launch again: as long as it had nothing to launch, as much is owed to it no more. */
void psg_returned(int gpu, uint64_t now);

#endif
