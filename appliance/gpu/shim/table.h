/* What this process has taken and not yet given back. */
#ifndef PSG_TABLE_H
#define PSG_TABLE_H

#include "shim.h"

enum psg_kind {
    PSG_FREE,
    PSG_POINTER,
    PSG_PAGE,
    PSG_ARRAY,
    PSG_MIPMAP,
    PSG_HANDLE,
    PSG_PART,
    PSG_MAPPING,
    PSG_AREA,
    PSG_CONTEXT,
    PSG_PRIMARY,
    PSG_GREEN,
    PSG_GREEN_NAME,
    PSG_EXECUTABLE,
    PSG_POOLED,
    PSG_RECORDING,
    PSG_LEAVING,
};

struct psg_entry {
    uint64_t key;
    uint64_t bytes;
    uint64_t owner; /* context or handle that it goes with */
    uint32_t count; /* handles: how many handles and mappings keep it; pages: how many blocks lie on it; executables: 1 where they allocate more than they free */
    int16_t gpu;
    uint16_t kind;
};

bool psg_table_put(const struct psg_entry *entry);
bool psg_table_take(enum psg_kind kind, uint64_t key, struct psg_entry *entry);
bool psg_table_get(enum psg_kind kind, uint64_t key, struct psg_entry *entry);

/* Takes out all entries of a kind and an owner, and calls `each` on every one. */
void psg_table_sweep(enum psg_kind kind, uint64_t owner, void (*each)(const struct psg_entry *entry));

/* While an owner is being destroyed its entries stand aside as PSG_LEAVING, for their names may be given out again before
 * the driver has answered; they come back where it refused. */
void psg_table_leave(enum psg_kind kind, uint64_t owner);
void psg_table_stay(uint64_t owner);

#endif
