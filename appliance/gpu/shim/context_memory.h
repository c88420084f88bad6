/* What a context takes of its GPU, and the memory that goes with it. */
#ifndef PSG_CONTEXT_MEMORY_H
#define PSG_CONTEXT_MEMORY_H

#include "shim.h"

/* Held while contexts are made and left, or two of them would be measured as one. */
void psg_contexts_lock(void);
void psg_contexts_unlock(void);

/* A context that is about to be made. */
struct psg_context_measure {
    int gpu;
    uint64_t charged;
    uint64_t before;
    uint64_t word;
    bool measured;
};

/* False: the limit forbids a context. Else `charged` is, and psg_context_end follows once it is there: it returns what the
 * context takes, or 0 where that is not known; so much is charged then. */
bool psg_context_begin(struct psg_context_measure *measure, int gpu);
uint64_t psg_context_end(const struct psg_context_measure *measure);

/* Memory that a context owns goes with it; physical handles and pools do not. It is set apart before the driver destroys the
 * context, and is lost when it has; psg_table_stay where it refused. */
void psg_context_set_apart(uint64_t context);
void psg_context_lost(uint64_t context);

#endif
