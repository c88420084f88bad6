/* What the parts of this library know of each other. */
#ifndef PSG_SHIM_H
#define PSG_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "layout.h"

/* resolve.c ------------------------------------------------------------------------------------------------------- */

/* The wrapper that stands for a real function, or the function itself. */
void *psg_wrapper(void *function);

/* dlsym without our own: the next definition after this library. */
void *psg_find(void *library, const char *name);

/* A library that is loaded, or that can be loaded where `load` is true; null else. */
void *psg_library(const char *name, bool load);

/* account.c, limits.c --------------------------------------------------------------------------------------------- */

/* Whether this process stands under limits at all, as it was found when CUDA or NVML was first asked for; looking again
 * finds limits that have come since. */
bool psg_limited(void);
void psg_look_for_limits(void);

/* Whether this process has a slot in the account; takes one where it has none yet (a new process, or after fork). */
bool psg_registered(void);

/* The number of the GPU with this UUID, whatever its prefix; -1: no limit for it. */
int psg_gpu_of_uuid(const char *text);
const char *psg_uuid_of_gpu(int gpu);
uint32_t psg_gpus(void);
uint64_t psg_memory_limit(int gpu);
uint32_t psg_compute_mode(int gpu);

/* The timetable of a GPU that is valid at a time; false: there is none. */
bool psg_timetable(int gpu, uint64_t now, struct psg_timetable *found, uint64_t *changes_ns);

struct psg_total *psg_total(int gpu);
uint64_t psg_used(int gpu);

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

void psg_say(const char *text);

/* table.c --------------------------------------------------------------------------------------------------------- */

enum psg_kind {
    PSG_FREE,
    PSG_POINTER,
    PSG_ARRAY,
    PSG_MIPMAP,
    PSG_HANDLE,
    PSG_MAPPING,
    PSG_CONTEXT,
    PSG_PRIMARY,
    PSG_GREEN,
    PSG_GREEN_NAME,
    PSG_NODE,
    PSG_EXECUTABLE,
    PSG_POOLED,
    PSG_RECORDING,
    PSG_LEAVING,
};

struct psg_entry {
    uint64_t key;
    uint64_t bytes;
    uint64_t owner; /* context, graph or handle that it goes with */
    uint32_t count; /* handles: how many handles and mappings keep it; executables: psg_pools_trims() + 1 at the last launch */
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

/* context.c ------------------------------------------------------------------------------------------------------- */

/* The GPU of a device, or of the context that is current; -1: not limited, or the driver itself is calling. */
int psg_gpu_of_device(int device);
int psg_gpu_here(uint64_t *context);
int psg_device_of_gpu(int gpu);

/* stream.c -------------------------------------------------------------------------------------------------------- */

/* The device, or the GPU, on which the work of a stream runs, and the context that it goes with; -1, or 0: nobody can tell.
 * No GPU is told where it is not limited, or where the driver itself is calling. */
int psg_device_of_stream(void *stream);
int psg_gpu_of_stream(void *stream);
uint64_t psg_context_of_stream(void *stream);

/* pools.c --------------------------------------------------------------------------------------------------------- */

/* psg_take, and where the limit forbids it once more after the memory that pools do not need was given back. */
bool psg_take_or_trim(int gpu, uint64_t bytes);

/* Where pools may have shrunk since the last look, charges what they hold now. */
void psg_pools_look(int gpu);
void psg_pools_settle(int gpu);

/* Charges graph nodes (bytes may be negative), or expects what a graph is about to take; false: the limit forbids it. */
bool psg_graph_nodes(int gpu, int64_t bytes);
bool psg_graph_expect(int gpu, uint64_t bytes);
uint32_t psg_pools_trims(void);

/* Memory of a pool that was taken out of the table has been freed. */
void psg_pooled_gone(const struct psg_entry *entry);

/* nvml.c ---------------------------------------------------------------------------------------------------------- */

/* The bytes that are in use on a GPU, by everybody; false: NVML is not there. */
bool psg_nvml_used(int gpu, uint64_t *bytes);
void psg_nvml_map(void (*add)(void *real, void *wrapper));

/* compute.c ------------------------------------------------------------------------------------------------------- */

/* A stream is about to be destroyed; null: all those of a context. */
void psg_stream_gone(void *stream);

/* record.c -------------------------------------------------------------------------------------------------------- */

/* A context was destroyed, and with it the recordings of its streams. */
void psg_recordings_gone(uint64_t context);

/* after a fork ---------------------------------------------------------------------------------------------------- */

void psg_table_forget(void);
void psg_pools_forget(void);
void psg_list_forget(void);
void psg_compute_forget(void);
void psg_context_forget(void);
void psg_handles_forget(void);
void psg_record_forget(void);
void psg_resolve_forget(void);

#endif
