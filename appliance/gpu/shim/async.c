/* Memory in the order of streams: taken from pools and given back to them. */
#include "device.h"
#include "driver.h"
#include "frees.h"
#include "limits.h"
#include "list.h"
#include "pools.h"
#include "record.h"
#include "stream.h"
#include "table.h"

/* Memory of a pool that the driver is about to be asked for. */
struct allocation {
    int gpu; /* -1: nothing is charged here */
    CUmemoryPool pool;
    CUstream stream;
    size_t size;
};

/* False: the limit forbids it. */
static bool begin_allocation(const struct allocation *allocation)
{
    return allocation->gpu < 0 || psg_pool_begin(allocation->gpu, allocation->pool, allocation->size);
}

/* Whether memory on a stream is charged now. What is recorded is memory of a graph, which is charged when that runs; and the
 * recording would not stand it if the driver was asked about the stream. */
static bool is_charged(CUstream stream)
{
    return psg_depth == 0 && psg_limited() && !psg_recorded(stream);
}

/* Charges what the pool took. Where that was more than expected and the limit forbids it, the memory goes back. */
static CUresult end_allocation(const struct allocation *allocation, CUresult result, const CUdeviceptr *pointer)
{
    int gpu = allocation->gpu;
    if (gpu < 0)
        return result;
    if (!psg_pool_fits(gpu) && result == CUDA_SUCCESS) {
        REAL(cuMemFreeAsync, *pointer, allocation->stream);
        REAL(cuStreamSynchronize, allocation->stream);
        psg_pool_fits(gpu);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS)
        psg_table_put(&(struct psg_entry){.kind = PSG_POOLED, .key = *pointer, .gpu = (int16_t)gpu,
                                          .bytes = allocation->size, .owner = (uint64_t)(uintptr_t)allocation->pool});
    psg_pool_end(gpu);
    return result;
}

/* Memory on a stream, from the pool of its device; none is charged where there are no pools. */
static struct allocation on_stream(CUstream stream, size_t size)
{
    struct allocation allocation = {.gpu = -1, .stream = stream, .size = size};
    int device = is_charged(stream) ? psg_device_of_stream(stream) : -1;
    if (psg_gpu_of_device(device) >= 0 && REAL(cuDeviceGetMemPool, &allocation.pool, device) == CUDA_SUCCESS)
        allocation.gpu = psg_gpu_of_pool(allocation.pool);
    return allocation;
}

static struct allocation from_pool(CUmemoryPool pool, CUstream stream, size_t size)
{
    int gpu = pool && is_charged(stream) ? psg_gpu_of_pool(pool) : -1;
    return (struct allocation){.gpu = gpu, .pool = pool, .stream = stream, .size = size};
}

/* Asks the driver by `call`, which leaves the address in `*pointer`. */
#define ALLOCATED(what, call) ({                                     \
        struct allocation allocation = what;                         \
        begin_allocation(&allocation) ? end_allocation(&allocation, call, pointer) : CUDA_ERROR_OUT_OF_MEMORY; \
    })

/* A default stream of the functions that give each thread one of its own. */
#define OWN (stream ? stream : CU_STREAM_PER_THREAD)

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t size, CUstream stream)
{
    return ALLOCATED(on_stream(stream, size), REAL(cuMemAllocAsync, pointer, size, stream));
}

EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t size, CUstream stream)
{
    return ALLOCATED(on_stream(OWN, size), REAL(cuMemAllocAsync_ptsz, pointer, size, stream));
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t size, CUmemoryPool pool, CUstream stream)
{
    return ALLOCATED(from_pool(pool, stream, size), REAL(cuMemAllocFromPoolAsync, pointer, size, pool, stream));
}

EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t size, CUmemoryPool pool, CUstream stream)
{
    return ALLOCATED(from_pool(pool, OWN, size), REAL(cuMemAllocFromPoolAsync_ptsz, pointer, size, pool, stream));
}

/* What a stream is about to free; its kind is PSG_FREE where it was not charged, or is freed when a graph runs. */
static struct psg_entry begin_free(CUdeviceptr pointer, CUstream stream)
{
    struct psg_entry entry = {.kind = PSG_FREE};
    if (is_charged(stream) && !psg_table_take(PSG_POOLED, pointer, &entry))
        psg_table_take(PSG_POINTER, pointer, &entry);
    return entry;
}

static CUresult end_free(const struct psg_entry *entry, CUresult result, CUstream stream)
{
    if (entry->kind == PSG_FREE && !is_charged(stream))
        return result;
    if (result != CUDA_SUCCESS && entry->kind != PSG_FREE)
        psg_table_put(entry);
    else if (entry->kind == PSG_POINTER)
        psg_free_on_stream(entry, stream);
    else if (entry->kind == PSG_POOLED)
        psg_pooled_gone_on(entry, stream);
    psg_pools_changed(entry->kind == PSG_FREE ? psg_gpu_here(NULL) : entry->gpu);
    return result;
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    struct psg_entry entry = begin_free(pointer, stream);
    return end_free(&entry, REAL(cuMemFreeAsync, pointer, stream), stream);
}

EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream)
{
    struct psg_entry entry = begin_free(pointer, OWN);
    return end_free(&entry, REAL(cuMemFreeAsync_ptsz, pointer, stream), OWN);
}
