/* Memory that is shared by descriptors. */
#ifndef PSG_EXPORTS_H
#define PSG_EXPORTS_H

#include "shim.h"

/* A descriptor was made for memory with a handle. */
void psg_exported(uint64_t handle, int descriptor);

/* No handle and no mapping of memory is left; true: a descriptor still holds it, so it stays charged for now. */
bool psg_export_holds(uint64_t handle, int gpu, uint64_t bytes);

/* Gives back what descriptors have held that are no more. */
void psg_exports_reap(int gpu);

/* Memory came by a descriptor: whoever made it is told that somebody has it until it is gone here. */
void psg_imported(uint64_t handle, int descriptor);
void psg_import_gone(uint64_t handle);

#endif
