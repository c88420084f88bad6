/* Which pools there are. */
#ifndef PSG_LIST_H
#define PSG_LIST_H

#include "driver.h"

void psg_list_pool(CUmemoryPool handle, int gpu);
void psg_unlist_pool(CUmemoryPool handle);
bool psg_is_listed_pool(CUmemoryPool handle, int *gpu);
bool psg_list_is_empty(void);

/* A pool that was not made through us is the default pool of a device, of the host, or of managed memory, or one that the
 * current device was given; it is listed from then on. */
int psg_gpu_of_pool(CUmemoryPool handle);

uint64_t psg_pool_attribute(CUmemoryPool handle, CUmemPool_attribute which);

/* What all pools of a GPU have reserved, destroyed ones included, and the return of what of it is not in use. */
uint64_t psg_list_reserved(int gpu);
void psg_list_trim(int gpu);

/* A pool that was destroyed before its blocks keeps what it had reserved until the last of them has been freed, and the
 * program has waited for that. It has a number from then on, which is odd, as no handle is. */
uint64_t psg_list_destroyed(CUmemoryPool handle, int gpu, uint64_t reserved);
void psg_list_left_block(uint64_t pool, bool more);
void psg_list_forget_empty(int gpu);

#endif
