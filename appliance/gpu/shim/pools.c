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
#include "pages.h"
#include "pools.h"
#include "table.h"

/* Pools grow by steps of this size at least; taken before the call, settled after it. */
#define STEP (UINT64_C(32) << 20)

struct stock {
    pthread_mutex_t lock;
    uint64_t charged;
    uint64_t nodes; /* allocations in graphs that are being built; launched ones show in what is reserved */
};

static struct stock stocks[PSG_GPUS] = {[0 ... PSG_GPUS - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};
static atomic_bool changed[PSG_GPUS];

static void after_fork_in_child(void)
{
    for (int gpu = 0; gpu < PSG_GPUS; gpu++) {
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
static atomic_uint trims;

static uint64_t reserved_by_graphs(int gpu)
{
    return atomic_load(&graphs_have_memory) ? graph_attribute(gpu, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) : 0;
}

/* What the stock of a GPU comes to now, `growing` more bytes of graphs included. */
static uint64_t measure(int gpu, uint64_t growing)
{
    uint64_t total = psg_list_reserved(gpu);
    uint64_t graphs = reserved_by_graphs(gpu) + growing;
    return total + (graphs > stocks[gpu].nodes ? graphs : stocks[gpu].nodes);
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

static void trim(int gpu)
{
    atomic_fetch_add(&trims, 1);
    psg_list_trim(gpu);
    int device = atomic_load(&graphs_have_memory) ? psg_device_of_gpu(gpu) : -1;
    if (device >= 0)
        REAL(cuDeviceGraphMemTrim, device);
    uint64_t target = measure(gpu, 0);
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
        psg_unlock(&stocks[gpu].lock);
        if (psg_take(gpu, bytes))
            return true;
    }
    return refuse(gpu);
}

void psg_pools_settle(int gpu)
{
    if (!has_stock(gpu))
        return;
    psg_lock(&stocks[gpu].lock);
    charge(gpu, measure(gpu, 0));
    psg_unlock(&stocks[gpu].lock);
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

static bool add_nodes(int gpu, int64_t bytes)
{
    struct stock *stock = &stocks[gpu];
    psg_lock(&stock->lock);
    atomic_store(&graphs_have_memory, true);
    stock->nodes += (uint64_t)bytes;
    uint64_t target = measure(gpu, 0);
    bool fits = bytes < 0 || target <= stock->charged ? charge(gpu, target) : charge_or_trim(gpu, target - stock->charged);
    if (!fits && bytes > 0)
        stock->nodes -= (uint64_t)bytes;
    psg_unlock(&stock->lock);
    return fits || bytes < 0;
}

bool psg_graph_nodes(int gpu, int64_t bytes)
{
    if (add_nodes(gpu, bytes))
        return true;
    reclaim(gpu);
    return add_nodes(gpu, bytes) || refuse(gpu);
}

/* How often memory was trimmed: as long as this stays the same, a graph that ran keeps what it took. */
uint32_t psg_pools_trims(void)
{
    return atomic_load(&trims);
}

static bool expect(int gpu, uint64_t bytes)
{
    struct stock *stock = &stocks[gpu];
    psg_lock(&stock->lock);
    atomic_store(&graphs_have_memory, true);
    uint64_t spare = reserved_by_graphs(gpu) - graph_attribute(gpu, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
    uint64_t target = measure(gpu, bytes > spare ? bytes - spare : 0);
    bool fits = target <= stock->charged || charge_or_trim(gpu, target - stock->charged);
    psg_unlock(&stock->lock);
    return fits;
}

bool psg_graph_expect(int gpu, uint64_t bytes)
{
    if (expect(gpu, bytes))
        return true;
    reclaim(gpu);
    return expect(gpu, bytes) || refuse(gpu);
}

/* Allocations ----------------------------------------------------------------------------------------------------- */

static uint64_t expected_growth(CUmemoryPool handle, uint64_t size)
{
    uint64_t reserved = psg_pool_attribute(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    uint64_t used = psg_pool_attribute(handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
    if (used <= reserved && size <= reserved - used)
        return 0;
    return size > UINT64_MAX - STEP ? UINT64_MAX : (size + STEP - 1) / STEP * STEP;
}

/* Holds the stock's lock where it succeeds. */
static bool begin(int gpu, CUmemoryPool pool, uint64_t size)
{
    psg_lock(&stocks[gpu].lock);
    uint64_t growth = expected_growth(pool, size);
    if (growth <= PSG_USED_MASK && charge_or_trim(gpu, growth))
        return true;
    psg_unlock(&stocks[gpu].lock);
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
    if (charge(gpu, measure(gpu, 0)))
        return true;
    trim(gpu);
    return charge(gpu, measure(gpu, 0));
}

void psg_pool_end(int gpu)
{
    psg_unlock(&stocks[gpu].lock);
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
    REAL(cuMemPoolTrimTo, pool, 0);
    uint64_t reserved = psg_pool_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    CUresult result = REAL(cuMemPoolDestroy, pool);
    if (result == CUDA_SUCCESS) {
        destroyed = psg_list_destroyed(pool, gpu, reserved);
        psg_table_sweep(PSG_POOLED, (uint64_t)(uintptr_t)pool, hand_over);
        atomic_store_explicit(&changed[gpu], true, memory_order_release);
    }
    charge(gpu, measure(gpu, 0));
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
    psg_unlock(&stocks[gpu].lock);
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
    atomic_fetch_add(&trims, 1);
    if (psg_depth == 0 && psg_limited())
        psg_pools_settle(psg_gpu_of_device(device));
    return result;
}
