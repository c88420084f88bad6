/* Random use of the driver, as the test of the shares needs it: every kind of memory, in any order. */
#include "client.h"

#include <string.h>

#define SLOTS 24
#define STEP (2ULL << 20)

typedef unsigned long long number;
typedef enum { NONE, PLAIN, PITCHED, MANAGED, ASYNC, POOLED, MAPPED, UNMAPPED, FLAT, LEVELS, GRAPH, KINDS } kind;

static struct {
    kind kind;
    CUdeviceptr address;
    number bytes;
    CUmemGenericAllocationHandle handle;
    CUarray array;
    CUmipmappedArray mipmap;
    CUgraphExec exec;
} slots[SLOTS];
static CUmemoryPool pool;
static number state;

static number roll(number below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

static CUresult make_virtual(int slot, number bytes, int keep_handle)
{
    CUmemAllocationProp as = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}}};
    CUresult code;
    bytes = (bytes / STEP + 1) * STEP;
    slots[slot].bytes = bytes;
    code = p_cuMemCreate(&slots[slot].handle, bytes, &as, 0);
    if (code != CUDA_SUCCESS || keep_handle)
        return code;
    /* the steps after it need no device memory */
    if ((code = p_cuMemAddressReserve(&slots[slot].address, bytes, 0, 0, 0)) != CUDA_SUCCESS)
        return code;
    if ((code = p_cuMemMap(slots[slot].address, bytes, 0, slots[slot].handle, 0)) != CUDA_SUCCESS)
        return code;
    return p_cuMemRelease(slots[slot].handle);
}

static CUresult make_graph(int slot, number bytes)
{
    CUmemPoolProps from = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}}};
    CUDA_MEM_ALLOC_NODE_PARAMS as = {.poolProps = from, .bytesize = bytes};
    CUgraphNode node, freed;
    CUgraph graph;
    CUresult code = p_cuGraphCreate(&graph, 0);
    if (code == CUDA_SUCCESS)
        code = p_cuGraphAddMemAllocNode(&node, graph, NULL, 0, &as);
    if (code == CUDA_SUCCESS)
        code = p_cuGraphAddMemFreeNode(&freed, graph, &node, 1, as.dptr);
    if (code == CUDA_SUCCESS)
        code = p_cuGraphInstantiateWithFlags(&slots[slot].exec, graph, 0);
    if (code == CUDA_SUCCESS && (code = p_cuGraphLaunch(slots[slot].exec, NULL)) != CUDA_SUCCESS)
        p_cuGraphExecDestroy(slots[slot].exec);
    p_cuGraphDestroy(graph);
    return code;
}

static CUresult make(int slot, kind wanted, number bytes)
{
    CUDA_ARRAY_DESCRIPTOR flat = {bytes / 64 + 1, 64, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    CUDA_ARRAY3D_DESCRIPTOR deep = {bytes / 256 + 1, 64, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
    size_t pitch;
    switch (wanted) {
    case PLAIN: return p_cuMemAlloc(&slots[slot].address, bytes);
    case PITCHED: return p_cuMemAllocPitch(&slots[slot].address, &pitch, bytes / 64 + 1, 64, 4);
    case MANAGED: return p_cuMemAllocManaged(&slots[slot].address, bytes, CU_MEM_ATTACH_GLOBAL);
    case ASYNC: return p_cuMemAllocAsync(&slots[slot].address, bytes, NULL);
    case POOLED: return p_cuMemAllocFromPoolAsync(&slots[slot].address, bytes, pool, NULL);
    case MAPPED: return make_virtual(slot, bytes, 0);
    case UNMAPPED: return make_virtual(slot, bytes, 1);
    case FLAT: return p_cuArrayCreate(&slots[slot].array, &flat);
    case LEVELS: return p_cuMipmappedArrayCreate(&slots[slot].mipmap, &deep, 3);
    case GRAPH: return make_graph(slot, bytes);
    default: return CUDA_ERROR_UNKNOWN;
    }
}

static CUresult drop(int slot)
{
    CUresult code;
    kind had = slots[slot].kind;
    slots[slot].kind = NONE;
    switch (had) {
    case ASYNC:
    case POOLED: return p_cuMemFreeAsync(slots[slot].address, NULL);
    case MAPPED:
        code = p_cuMemUnmap(slots[slot].address, slots[slot].bytes);
        return code != CUDA_SUCCESS ? code : p_cuMemAddressFree(slots[slot].address, slots[slot].bytes);
    case UNMAPPED: return p_cuMemRelease(slots[slot].handle);
    case FLAT: return p_cuArrayDestroy(slots[slot].array);
    case LEVELS: return p_cuMipmappedArrayDestroy(slots[slot].mipmap);
    case GRAPH: return p_cuGraphExecDestroy(slots[slot].exec);
    case NONE: return CUDA_SUCCESS;
    default: return p_cuMemFree(slots[slot].address);
    }
}

static CUresult wait_and_trim(void)
{
    CUmemoryPool usual;
    CUresult code = p_cuCtxSynchronize();
    if (code == CUDA_SUCCESS)
        code = p_cuMemPoolTrimTo(pool, 0);
    if (code == CUDA_SUCCESS)
        code = p_cuDeviceGetDefaultMemPool(&usual, 0);
    if (code == CUDA_SUCCESS)
        code = p_cuMemPoolTrimTo(usual, 0);
    return code == CUDA_SUCCESS ? p_cuDeviceGraphMemTrim(0) : code;
}

CUresult churn(number operations, number seed, number largest, number *succeeded, number *refused)
{
    CUmemPoolProps as = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}}};
    CUresult code = p_cuMemPoolCreate(&pool, &as);
    state = seed * 2654435761ULL + 88172645463325252ULL;
    for (number each = 0; each < operations && code == CUDA_SUCCESS; each++) {
        int slot = (int)roll(SLOTS);
        kind wanted = (kind)(1 + roll(KINDS - 1));
        if (slots[slot].kind != NONE) {
            code = drop(slot);
            ++*succeeded;
            continue;
        }
        code = make(slot, wanted, 1 + roll(largest));
        if (code == CUDA_SUCCESS) {
            slots[slot].kind = wanted;
            ++*succeeded;
        } else if (code == CUDA_ERROR_OUT_OF_MEMORY) {
            code = CUDA_SUCCESS;
            ++*refused;
        }
        if (code == CUDA_SUCCESS && roll(64) == 0)
            code = wait_and_trim();
    }
    for (int slot = 0; slot < SLOTS && code == CUDA_SUCCESS; slot++)
        code = drop(slot);
    if (code == CUDA_SUCCESS)
        code = wait_and_trim();
    return code == CUDA_SUCCESS ? p_cuMemPoolDestroy(pool) : code;
}
