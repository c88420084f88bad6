/* The account of this container: who has taken how many bytes of which GPU. */
#ifndef PSG_ACCOUNT_H
#define PSG_ACCOUNT_H

#include "shim.h"

/* Whether this process has a slot in the account; takes one where it has none yet (a new process, or after fork). */
bool psg_registered(void);

struct psg_total *psg_total(int gpu);

/* Where the work of the container is noted, and the slot of this process; null where it has none, or the file no place. */
struct psg_log *psg_log(int gpu, uint64_t *slot);
uint64_t psg_used(int gpu);

/* What the container is charged, and what it holds beyond that. */
uint64_t psg_held(int gpu);

/* Bytes are taken before the driver is asked for them; false: the limit forbids them. */
bool psg_take(int gpu, uint64_t bytes);
void psg_give(int gpu, uint64_t bytes);
void psg_count_refusal(int gpu);

/* Gives back what processes held that are no more. */
void psg_reap(void);

/* The processes that hold bytes of a GPU, as (pid, bytes); returns how many there are, and fills at most `most`. */
struct psg_holder {
    uint32_t pid;
    uint64_t bytes;
};
unsigned psg_holders(int gpu, struct psg_holder *holders, unsigned most);
bool psg_is_ours(uint32_t pid);

#endif
