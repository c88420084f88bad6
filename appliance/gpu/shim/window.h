/* When the processes of a container may launch work on a GPU. */
#ifndef PSG_WINDOW_H
#define PSG_WINDOW_H

#include "shim.h"

uint64_t psg_now(void);

/* Sleeps until a time, or shorter where a signal comes. */
void psg_sleep_until(uint64_t time);

/* The end of the window that is open now, or 0 and the time at which to ask again (UINT64_MAX: there is no timetable).
 * Windows that end at `used` or before are over. Debt of the container is paid by opening later; `usual` is how long one
 * launch takes. */
uint64_t psg_open_window(int gpu, uint64_t now, uint64_t used, uint64_t usual, uint64_t *again);

/* Counts work of a container on a GPU between two times, in a window that ended at `end` (0: without any). */
void psg_worked(int gpu, uint64_t from, uint64_t to, uint64_t end);

/* A window that ended early, because what is launched takes longer than what was left. */
void psg_left_over(int gpu, uint64_t at, uint64_t end, uint64_t most);

#endif
