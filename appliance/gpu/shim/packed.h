/* Memory whose place nobody is told. */
#ifndef PSG_PACKED_H
#define PSG_PACKED_H

#include "shim.h"

/* Memory of arrays, before the driver is asked for it; false: the limit forbids it. */
bool psg_packed_take(int gpu, uint64_t bytes);
void psg_packed_give(int gpu, uint64_t bytes);

#endif
