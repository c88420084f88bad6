/* Memory that the driver holds in stock: pools, and the memory of graphs. What counts is what they have reserved, not what
 * of it is in use, for nobody else can have it. Each GPU has one charge for all of it, settled after every operation. */
#include <pthread.h>
#include <stdatomic.h>

#include "account.h"
#include "device.h"
#include "driver.h"
#include "exports.h"
#include "fork.h"
#include "frees.h"
#include "limits.h"
#include "list.h"
#include "lock.h"
#include "orders.h"
#include "pages.h"
#include "pools.h"
#include "table.h"
#include "watched.h"

struct stock {
    pthread_mutex_t lock;
    uint64_t charged;
    struct psg_orders orders;
};

static struct stock stocks[PSG_GPUS] = {[0 ... PSG_GPUS - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};
static atomic_bool changed[PSG_GPUS];

/* The streams that have freed memory of pools since somebody last asked whether they are idle. */
static pthread_mutex_t freeing = PTHREAD_MUTEX_INITIALIZER;
static struct psg_streams freed_on[PSG_GPUS];
static atomic_bool waited; /* and pools of any GPU may have shrunk */

static void after_fork_in_child(void)
{
    freeing = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    for (int gpu = 0; gpu < PSG_GPUS; gpu++) {
        psg_watch_none(&freed_on[gpu]);
        stocks[gpu] = (struct stock){.lock = PTHREAD_MUTEX_INITIALIZER};
        atomic_store(&changed[gpu], false);
    }
}

AT_FORK(.in_child = after_fork_in_child);

static uint64_t graph_attribute(int gpu, CUgraphMem_attribute which)
{
    cuuint64_t value = 0;
    int device = psg_device_of_gpu(gpu);
    return device >= 0 && REAL(cuDeviceGetGraphMemAttribute, device, which, &value) == CUDA_SUCCESS ? value : 0;
}

/* Charges --------------------------------------------------------------------------------------------------------- */

static atomic_bool graphs_have_memory;

static uint64_t reserved_by_graphs(int gpu)
{
    return atomic_load(&graphs_have_memory) ? graph_attribute(gpu, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) : 0;
}

/* What the stock of a GPU comes to now. */
static uint64_t measure(int gpu)
{
    return psg_list_reserved(gpu) + reserved_by_graphs(gpu);
}

static bool charge(int gpu, uint64_t target)
{
    struct stock *stock = &stocks[gpu];
    if (target > stock->charged && !psg_take(gpu, target - stock->charged))
        return false;
    if (target < stock->charged)
        psg_give(gpu, stock->charged - target);
    __atomic_store_n(&stock->charged, target, __ATOMIC_RELAXED);
    return true;
}

static void forget_orders(int gpu)
{
    psg_orders_forget(&stocks[gpu].orders, reserved_by_graphs(gpu));
}

/* Trimming leaves what streams have freed until somebody has waited for them; for those that are idle, that is us. The caller
 * has the stock's lock. */
static void settle_frees(int gpu)
{
    psg_lock(&freeing);
    if (psg_settle_streams(&freed_on[gpu]))
        atomic_store(&waited, true);
    psg_unlock(&freeing);
}

static void trim(int gpu)
{
    settle_frees(gpu);
    psg_list_trim(gpu);
    int device = atomic_load(&graphs_have_memory) ? psg_device_of_gpu(gpu) : -1;
    if (device >= 0)
        REAL(cuDeviceGraphMemTrim, device);
    forget_orders(gpu);
    uint64_t target = measure(gpu);
    if (target < stocks[gpu].charged)
        charge(gpu, target);
}

/* The caller has the stock's lock. */
static bool charge_or_trim(int gpu, uint64_t growth)
{
    if (charge(gpu, stocks[gpu].charged + growth))
        return true;
    trim(gpu);
    return charge(gpu, stocks[gpu].charged + growth);
}

static bool has_stock(int gpu)
{
    return gpu >= 0 && (!psg_list_is_empty() || atomic_load(&graphs_have_memory) ||
                        __atomic_load_n(&stocks[gpu].charged, __ATOMIC_RELAXED));
}

void psg_pools_settle(int gpu)
{
    if (!has_stock(gpu))
        return;
    psg_lock(&stocks[gpu].lock);
    charge(gpu, measure(gpu));
    psg_unlock(&stocks[gpu].lock);
}

/* What this GPU has is settled: more may be charged than it has by now, for what it is about to take. */
static void unlock_stock(int gpu)
{
    psg_unlock(&stocks[gpu].lock);
    if (atomic_load_explicit(&waited, memory_order_relaxed) && atomic_exchange(&waited, false))
        for (int each = 0; each < (int)psg_gpus(); each++)
            if (each != gpu)
                psg_pools_settle(each);
}

/* What has been given up without a word to us; the caller has no stock's lock. */
static void reclaim(int gpu)
{
    psg_exports_reap(gpu);
    psg_frees_reap();
}

static bool refuse(int gpu)
{
    psg_count_refusal(gpu);
    return false;
}

bool psg_take_or_trim(int gpu, uint64_t bytes)
{
    if (psg_take(gpu, bytes))
        return true;
    reclaim(gpu);
    if (psg_take(gpu, bytes))
        return true;
    if (has_stock(gpu) && psg_registered()) {
        psg_lock(&stocks[gpu].lock);
        trim(gpu);
        unlock_stock(gpu);
        if (psg_take(gpu, bytes))
            return true;
    }
    return refuse(gpu);
}

void psg_pools_look(int gpu)
{
    /* What is freed from now on is given back at the next wait only. */
    if (gpu < 0 || !atomic_load_explicit(&changed[gpu], memory_order_relaxed) ||
        !atomic_exchange_explicit(&changed[gpu], false, memory_order_acquire))
        return;
    psg_list_forget_empty(gpu);
    psg_pools_settle(gpu);
}

/* Graphs ---------------------------------------------------------------------------------------------------------- */

/* How much more a graph may take. */
static uint64_t growth_of_graphs(int gpu, uint64_t order, uint64_t bytes)
{
    uint64_t most = psg_orders_add(&stocks[gpu].orders, order, bytes), reserved = reserved_by_graphs(gpu);
    return most > reserved ? smaller(most - reserved, bytes) : 0;
}

static bool expect(int gpu, uint64_t order, uint64_t bytes)
{
    psg_lock(&stocks[gpu].lock);
    atomic_store(&graphs_have_memory, true);
    bool fits = charge(gpu, measure(gpu) + growth_of_graphs(gpu, order, bytes));
    if (!fits) {
        trim(gpu);
        fits = charge(gpu, measure(gpu) + growth_of_graphs(gpu, order, bytes));
    }
    unlock_stock(gpu);
    return fits;
}

bool psg_graph_expect(int gpu, uint64_t order, uint64_t bytes)
{
    if (expect(gpu, order, bytes))
        return true;
    reclaim(gpu);
    return expect(gpu, order, bytes);
}

/* Allocations ----------------------------------------------------------------------------------------------------- */

static uint64_t expected_growth(CUmemoryPool handle, uint64_t size)
{
    uint64_t reserved = psg_pool_attribute(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    uint64_t used = psg_pool_attribute(handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
    if (used <= reserved && size <= reserved - used)
        return 0;
    return size > UINT64_MAX - PSG_CHUNK ? UINT64_MAX : (size + PSG_CHUNK - 1) / PSG_CHUNK * PSG_CHUNK;
}

/* Holds the stock's lock where it succeeds. */
static bool begin(int gpu, CUmemoryPool pool, uint64_t size)
{
    psg_lock(&stocks[gpu].lock);
    uint64_t growth = expected_growth(pool, size);
    if (growth <= PSG_USED_MASK && charge_or_trim(gpu, growth))
        return true;
    unlock_stock(gpu);
    return false;
}

bool psg_pool_begin(int gpu, void *pool, uint64_t size)
{
    if (begin(gpu, pool, size))
        return true;
    reclaim(gpu);
    return begin(gpu, pool, size) || refuse(gpu);
}

bool psg_pool_fits(int gpu)
{
    if (charge(gpu, measure(gpu)))
        return true;
    trim(gpu);
    return charge(gpu, measure(gpu));
}

void psg_pool_end(int gpu)
{
    unlock_stock(gpu);
}

void psg_pools_changed(int gpu)
{
    if (has_stock(gpu))
        atomic_store_explicit(&changed[gpu], true, memory_order_release);
}

/* Whether the pool of a block was destroyed before it. */
static bool is_left(const struct psg_entry *entry)
{
    return entry->owner & 1;
}

void psg_pooled_gone(const struct psg_entry *entry)
{
    if (is_left(entry))
        psg_list_left_block(entry->owner, false);
    atomic_store_explicit(&changed[entry->gpu], true, memory_order_release);
}

void psg_pooled_gone_on(const struct psg_entry *entry, void *stream)
{
    psg_lock(&freeing);
    psg_watch(&freed_on[entry->gpu], stream);
    psg_unlock(&freeing);
    psg_pooled_gone(entry);
}

void psg_pools_stream_gone(void *stream)
{
    for (int gpu = 0; gpu < (int)psg_gpus(); gpu++) {
        psg_lock(&freeing);
        bool has_freed = psg_is_watched(&freed_on[gpu], stream);
        psg_unlock(&freeing);
        if (!has_freed)
            continue;
        /* pools may shrink by this, and nobody must count on what one of them has in stock meanwhile */
        psg_lock(&stocks[gpu].lock);
        settle_frees(gpu);
        unlock_stock(gpu);
        psg_lock(&freeing);
        psg_unwatch(&freed_on[gpu], stream);
        psg_unlock(&freeing);
    }
}

void psg_pools_context_gone(uint64_t context)
{
    psg_lock(&freeing);
    for (int gpu = 0; gpu < (int)psg_gpus(); gpu++)
        psg_unwatch_of(&freed_on[gpu], context);
    psg_unlock(&freeing);
}

/* Pools ----------------------------------------------------------------------------------------------------------- */

EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *how)
{
    CUresult result = REAL(cuMemPoolCreate, pool, how);
    if (result == CUDA_SUCCESS && psg_depth == 0 && psg_limited())
        psg_list_pool(*pool, psg_gpu_of_memory(how->allocType, &how->location));
    return result;
}

/* The number of the pool whose blocks are being handed over by this thread. */
static __thread uint64_t destroyed;

static void hand_over(const struct psg_entry *entry)
{
    struct psg_entry left = *entry;
    left.owner = destroyed;
    psg_list_left_block(destroyed, true);
    psg_table_put(&left);
}

/* The caller has the stock's lock. What blocks still need of the pool is known before it has no name any more. */
static CUresult destroy(CUmemoryPool pool, int gpu)
{
    settle_frees(gpu);
    REAL(cuMemPoolTrimTo, pool, 0);
    uint64_t reserved = psg_pool_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    CUresult result = REAL(cuMemPoolDestroy, pool);
    if (result == CUDA_SUCCESS) {
        destroyed = psg_list_destroyed(pool, gpu, reserved);
        psg_table_sweep(PSG_POOLED, (uint64_t)(uintptr_t)pool, hand_over);
        atomic_store_explicit(&changed[gpu], true, memory_order_release);
    }
    charge(gpu, measure(gpu));
    return result;
}

EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    int gpu = -1;
    if (psg_depth > 0 || !psg_limited() || !psg_is_listed_pool(pool, &gpu) || gpu < 0) {
        psg_unlist_pool(pool);
        return REAL(cuMemPoolDestroy, pool);
    }
    psg_lock(&stocks[gpu].lock);
    CUresult result = destroy(pool, gpu);
    unlock_stock(gpu);
    return result;
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    CUresult result = REAL(cuMemPoolTrimTo, pool, keep);
    if (psg_depth == 0 && psg_limited())
        psg_pools_settle(psg_gpu_of_pool(pool));
    return result;
}

EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    CUresult result = REAL(cuDeviceGraphMemTrim, device);
    int gpu = psg_depth == 0 && psg_limited() ? psg_gpu_of_device(device) : -1;
    if (gpu < 0)
        return result;
    psg_lock(&stocks[gpu].lock);
    forget_orders(gpu);
    charge(gpu, measure(gpu));
    unlock_stock(gpu);
    return result;
}
