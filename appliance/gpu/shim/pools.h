/* Memory that the driver holds in stock: pools, and the memory of graphs. */
#ifndef PSG_POOLS_H
#define PSG_POOLS_H

#include "table.h"

/* psg_take, and where the limit forbids it once more after the memory that pools do not need was given back. */
bool psg_take_or_trim(int gpu, uint64_t bytes);

/* Where pools may have shrunk since the last look, charges what they hold now. */
void psg_pools_look(int gpu);
void psg_pools_settle(int gpu);

/* Pools may shrink at the next wait. */
void psg_pools_changed(int gpu);

/* Before a pool is asked for memory, what it will take of the GPU is charged, as far as that is known; false: the limit forbids
 * it. Else nobody changes the stock until psg_pool_end; in between psg_pool_fits charges what pools really took; false: the limit
 * forbids that. */
bool psg_pool_begin(int gpu, void *pool, uint64_t size);
bool psg_pool_fits(int gpu);
void psg_pool_end(int gpu);

/* Pools and graphs grow by steps of this size at least. */
#define PSG_CHUNK (UINT64_C(32) << 20)

/* Charges what a graph of so many bytes, whole chunks, may take; false: the limit forbids it. What it really took is settled
 * behind that. Graphs of one order run one after the other, and share memory. */
bool psg_graph_expect(int gpu, uint64_t order, uint64_t bytes);

/* Memory of a pool that was taken out of the table has been freed; by a stream, which gets there some time. */
void psg_pooled_gone(const struct psg_entry *entry);
void psg_pooled_gone_on(const struct psg_entry *entry, void *stream);

/* A stream, or a context with its streams, is about to be destroyed. */
void psg_pools_stream_gone(void *stream);
void psg_pools_context_gone(uint64_t context);

#endif
