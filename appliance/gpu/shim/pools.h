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

/* Charges graph nodes (bytes may be negative), or expects what a graph is about to take; false: the limit forbids it. */
bool psg_graph_nodes(int gpu, int64_t bytes);
bool psg_graph_expect(int gpu, uint64_t bytes);

/* How often memory was trimmed: as long as this stays the same, a graph that ran keeps what it took. */
uint32_t psg_pools_trims(void);

/* Memory of a pool that was taken out of the table has been freed. */
void psg_pooled_gone(const struct psg_entry *entry);

#endif
