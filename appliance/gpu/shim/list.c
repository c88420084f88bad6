/* The pools of this process, and the GPU that each one takes its memory from. */
#include <pthread.h>
#include <stdlib.h>

#include "device.h"
#include "driver.h"
#include "fork.h"
#include "list.h"
#include "lock.h"

struct pool {
    CUmemoryPool handle;
    int gpu; /* -1: memory of the host, or of a GPU without a limit */
};

/* A destroyed pool of which blocks are left. */
struct rest {
    uint64_t number;
    uint64_t reserved;
    unsigned blocks;
    int gpu;
};

static pthread_mutex_t listing = PTHREAD_MUTEX_INITIALIZER;
static struct pool *pools;
static size_t pool_count;
static struct rest *rests;
static size_t rest_count;
static uint64_t numbers = 1;

static void after_fork_in_child(void)
{
    listing = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    pools = NULL;
    pool_count = 0;
    rests = NULL;
    rest_count = 0;
}

AT_FORK(.in_child = after_fork_in_child);

bool psg_list_is_empty(void)
{
    return __atomic_load_n(&pool_count, __ATOMIC_RELAXED) == 0 && __atomic_load_n(&rest_count, __ATOMIC_RELAXED) == 0;
}

void psg_list_pool(CUmemoryPool handle, int gpu)
{
    psg_lock(&listing);
    size_t place = 0;
    while (place < pool_count && pools[place].handle != handle)
        place++;
    /* Two threads may meet the same pool for the first time. */
    struct pool *wider = place < pool_count ? pools : realloc(pools, (pool_count + 1) * sizeof *pools);
    if (wider) {
        pools = wider;
        pools[place] = (struct pool){handle, gpu};
        pool_count += place == pool_count;
    }
    psg_unlock(&listing);
}

bool psg_is_listed_pool(CUmemoryPool handle, int *gpu)
{
    bool found = false;
    psg_lock(&listing);
    for (size_t i = 0; i < pool_count && !found; i++) {
        found = pools[i].handle == handle;
        if (found)
            *gpu = pools[i].gpu;
    }
    psg_unlock(&listing);
    return found;
}

/* The caller has the lock. */
static void unlist_pool(CUmemoryPool handle)
{
    for (size_t i = 0; i < pool_count; i++)
        if (pools[i].handle == handle)
            pools[i--] = pools[--pool_count];
}

void psg_unlist_pool(CUmemoryPool handle)
{
    psg_lock(&listing);
    unlist_pool(handle);
    psg_unlock(&listing);
}

uint64_t psg_list_destroyed(CUmemoryPool handle, int gpu, uint64_t reserved)
{
    psg_lock(&listing);
    unlist_pool(handle);
    uint64_t number = numbers;
    numbers += 2;
    struct rest *more = realloc(rests, (rest_count + 1) * sizeof *rests);
    if (more) {
        rests = more;
        rests[rest_count++] = (struct rest){.number = number, .reserved = reserved, .gpu = gpu};
    }
    psg_unlock(&listing);
    return number;
}

void psg_list_left_block(uint64_t pool, bool more)
{
    psg_lock(&listing);
    for (size_t i = 0; i < rest_count; i++)
        if (rests[i].number == pool)
            rests[i].blocks = more ? rests[i].blocks + 1 : rests[i].blocks - (rests[i].blocks > 0);
    psg_unlock(&listing);
}

void psg_list_forget_empty(int gpu)
{
    psg_lock(&listing);
    for (size_t i = 0; i < rest_count; i++)
        if (rests[i].gpu == gpu && rests[i].blocks == 0)
            rests[i--] = rests[--rest_count];
    psg_unlock(&listing);
}

static bool is_of_host(CUmemoryPool handle)
{
    CUmemoryPool own;
    CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST};
    return REAL(cuMemGetDefaultMemPool, &own, &host, CU_MEM_ALLOCATION_TYPE_PINNED) == CUDA_SUCCESS && own == handle;
}

int psg_gpu_of_pool(CUmemoryPool handle)
{
    int gpu = -1, devices = 0;
    if (psg_is_listed_pool(handle, &gpu))
        return gpu;
    REAL(cuDeviceGetCount, &devices);
    bool found = false;
    for (CUdevice device = 0; device < devices && !found; device++) {
        CUmemoryPool own;
        found = (REAL(cuDeviceGetDefaultMemPool, &own, device) == CUDA_SUCCESS && own == handle) ||
                (REAL(cuDeviceGetMemPool, &own, device) == CUDA_SUCCESS && own == handle);
        if (found)
            gpu = psg_gpu_of_device(device);
    }
    if (!found && !is_of_host(handle))
        gpu = psg_gpu_here(NULL);
    psg_list_pool(handle, gpu);
    return gpu;
}

uint64_t psg_pool_attribute(CUmemoryPool handle, CUmemPool_attribute which)
{
    cuuint64_t value = 0;
    return REAL(cuMemPoolGetAttribute, handle, which, &value) == CUDA_SUCCESS ? value : 0;
}

uint64_t psg_list_reserved(int gpu)
{
    uint64_t total = 0;
    psg_lock(&listing);
    for (size_t i = 0; i < pool_count; i++)
        if (pools[i].gpu == gpu)
            total += psg_pool_attribute(pools[i].handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    for (size_t i = 0; i < rest_count; i++)
        total += rests[i].gpu == gpu ? rests[i].reserved : 0;
    psg_unlock(&listing);
    return total;
}

void psg_list_trim(int gpu)
{
    psg_lock(&listing);
    for (size_t i = 0; i < pool_count; i++)
        if (pools[i].gpu == gpu)
            REAL(cuMemPoolTrimTo, pools[i].handle, 0);
    psg_unlock(&listing);
}
