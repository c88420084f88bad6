/* Blocks that streams free when they get there. */
#ifndef PSG_FREES_H
#define PSG_FREES_H

#include "driver.h"
#include "table.h"

/* The driver has been told to free a block on a stream. */
void psg_free_on_stream(const struct psg_entry *block, CUstream stream);

/* Gives back what has been freed by now. */
void psg_frees_reap(void);

/* A context (0: nobody can tell which) is about to be destroyed: waits for what its streams free, and for its blocks. */
void psg_frees_finish(uint64_t context);

#endif
