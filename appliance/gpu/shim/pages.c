/* The driver takes memory of the GPU by whole pages, of 2 MiB so far, and lays small blocks of a context on the same ones.
 * Which these are is told by the addresses: a page counts from the first block on it until the last one. */
#include <pthread.h>
#include <stdatomic.h>

#include "account.h"
#include "device.h"
#include "driver.h"
#include "fork.h"
#include "lock.h"
#include "pages.h"
#include "table.h"

#define USUAL_PAGE (UINT64_C(2) << 20)

static pthread_mutex_t placing = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(uint64_t) sizes[PSG_GPUS]; /* 0: not asked yet */

static void after_fork_in_child(void)
{
    placing = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

AT_FORK(.in_child = after_fork_in_child);

static uint64_t ask_page(int gpu)
{
    size_t size = 0;
    CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = psg_device_of_gpu(gpu)}};
    bool answered = REAL(cuMemGetAllocationGranularity, &size, &how, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS;
    return answered && size && (size & (size - 1)) == 0 ? size : USUAL_PAGE;
}

uint64_t psg_page(int gpu)
{
    uint64_t size = atomic_load_explicit(&sizes[gpu], memory_order_relaxed);
    if (!size)
        atomic_store_explicit(&sizes[gpu], size = ask_page(gpu), memory_order_relaxed);
    return size;
}

uint64_t psg_whole_pages(int gpu, uint64_t bytes)
{
    uint64_t page = psg_page(gpu);
    return bytes > UINT64_MAX - page ? UINT64_MAX : (bytes + page - 1) & ~(page - 1);
}

/* One block more or less lies on a page that others may lie on, too; true: it is the first, or was the last. */
static bool count_on(int gpu, uint64_t page, bool more)
{
    struct psg_entry entry;
    if (!psg_table_take(PSG_PAGE, page, &entry))
        entry = (struct psg_entry){.kind = PSG_PAGE, .key = page, .gpu = (int16_t)gpu};
    bool alone = entry.count == (more ? 0 : 1);
    entry.count = more ? entry.count + 1 : entry.count - (entry.count > 0);
    if (entry.count)
        psg_table_put(&entry);
    return alone;
}

/* The pages between the first and the last one are the block's own, and so are these where it covers them. */
static uint64_t count_block(int gpu, uint64_t address, uint64_t bytes, bool more)
{
    uint64_t size = psg_page(gpu), end = address + bytes;
    uint64_t inner = (address + size - 1) & ~(size - 1), behind = end & ~(size - 1);
    uint64_t own = behind > inner ? behind - inner : 0;
    psg_lock(&placing);
    if (address < inner)
        own += count_on(gpu, inner - size, more) ? size : 0;
    if (end > behind && behind >= inner)
        own += count_on(gpu, behind, more) ? size : 0;
    psg_unlock(&placing);
    return own;
}

uint64_t psg_block_placed(int gpu, uint64_t address, uint64_t bytes)
{
    return count_block(gpu, address, bytes, true);
}

uint64_t psg_block_gone(int gpu, uint64_t address, uint64_t bytes)
{
    return count_block(gpu, address, bytes, false);
}

void psg_block_give(const struct psg_entry *block)
{
    psg_give(block->gpu, psg_block_gone(block->gpu, block->key, block->bytes));
}
