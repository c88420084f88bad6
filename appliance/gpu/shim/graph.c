/* Memory of graphs: charged when a node is added, and when a graph that holds such nodes (added, captured, cloned or in a
 * child graph) is uploaded or launched. */
#include <stdatomic.h>
#include <stdlib.h>

#include "device.h"
#include "driver.h"
#include "graph.h"
#include "limits.h"
#include "pages.h"
#include "pools.h"
#include "table.h"

static int gpu_of(const CUmemLocation *location)
{
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? psg_gpu_of_device(location->id) : -1;
}

static void give_node(const struct psg_entry *entry)
{
    psg_graph_nodes(entry->gpu, -(int64_t)entry->bytes);
}

static void keep_node(CUgraphNode node, CUgraph graph, int gpu, uint64_t bytes)
{
    psg_table_put(&(struct psg_entry){.kind = PSG_NODE, .key = (uint64_t)(uintptr_t)node, .gpu = (int16_t)gpu,
                                      .bytes = bytes, .owner = (uint64_t)(uintptr_t)graph});
}

static bool too_large(uint64_t bytes)
{
    return bytes > PSG_USED_MASK;
}

EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                                       CUDA_MEM_ALLOC_NODE_PARAMS *how)
{
    int gpu = psg_depth == 0 && psg_limited() && how ? gpu_of(&how->poolProps.location) : -1;
    if (gpu < 0)
        return REAL(cuGraphAddMemAllocNode, node, graph, after, count, how);
    uint64_t bytes = psg_whole_pages(gpu, how->bytesize);
    if (too_large(bytes) || !psg_graph_nodes(gpu, (int64_t)bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuGraphAddMemAllocNode, node, graph, after, count, how);
    if (result == CUDA_SUCCESS)
        keep_node(*node, graph, gpu, bytes);
    else
        psg_graph_nodes(gpu, -(int64_t)bytes);
    return result;
}

#define ADDS(symbol, parameters, ...)                                \
    EXPORT CUresult symbol parameters                                \
    {                                                                \
        int gpu = psg_depth == 0 && psg_limited() && how && how->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC \
                      ? gpu_of(&how->alloc.poolProps.location) : -1; \
        if (gpu < 0)                                                 \
            return REAL(symbol, __VA_ARGS__);                        \
        uint64_t bytes = psg_whole_pages(gpu, how->alloc.bytesize);   \
        if (too_large(bytes) || !psg_graph_nodes(gpu, (int64_t)bytes)) \
            return CUDA_ERROR_OUT_OF_MEMORY;                         \
        CUresult result = REAL(symbol, __VA_ARGS__);                 \
        if (result == CUDA_SUCCESS)                                  \
            keep_node(*node, graph, gpu, bytes);                     \
        else                                                         \
            psg_graph_nodes(gpu, -(int64_t)bytes);                   \
        return result;                                               \
    }

ADDS(cuGraphAddNode,
     (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, CUgraphNodeParams *how),
     node, graph, after, count, how)
ADDS(cuGraphAddNode_v2,
     (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges, size_t count,
      CUgraphNodeParams *how),
     node, graph, after, edges, count, how)
ADDS(cuGraphAddNode_v3,
     (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges, size_t count,
      CUgraphNodeParams *how),
     node, graph, after, edges, count, how)

EXPORT CUresult cuGraphDestroyNode(CUgraphNode node)
{
    struct psg_entry entry;
    bool known = psg_depth == 0 && psg_limited() && psg_table_take(PSG_NODE, (uint64_t)(uintptr_t)node, &entry);
    CUresult result = REAL(cuGraphDestroyNode, node);
    if (known && result == CUDA_SUCCESS)
        give_node(&entry);
    else if (known)
        psg_table_put(&entry);
    return result;
}

EXPORT CUresult cuGraphDestroy(CUgraph graph)
{
    if (psg_depth > 0 || !psg_limited())
        return REAL(cuGraphDestroy, graph);
    uint64_t owner = (uint64_t)(uintptr_t)graph;
    psg_table_leave(PSG_NODE, owner);
    CUresult result = REAL(cuGraphDestroy, graph);
    if (result == CUDA_SUCCESS)
        psg_table_sweep(PSG_LEAVING, owner, give_node);
    else
        psg_table_stay(owner);
    return result;
}

/* Executable graphs ----------------------------------------------------------------------------------------------- */

/* A graph inside a graph inside a graph …: deeper than anybody builds. */
enum { DEEPEST = 32 };

static atomic_uint with_memory;

static uint64_t node_bytes(CUgraphNode node, int *gpu, int depth);

static uint64_t graph_bytes(CUgraph graph, int *gpu, int depth)
{
    size_t count = 0;
    if (depth > DEEPEST || REAL(cuGraphGetNodes, graph, NULL, &count) != CUDA_SUCCESS || count == 0)
        return 0;
    CUgraphNode *nodes = calloc(count, sizeof *nodes);
    uint64_t bytes = 0;
    if (nodes && REAL(cuGraphGetNodes, graph, nodes, &count) == CUDA_SUCCESS)
        for (size_t i = 0; i < count; i++)
            bytes += node_bytes(nodes[i], gpu, depth);
    free(nodes);
    return bytes;
}

static uint64_t node_bytes(CUgraphNode node, int *gpu, int depth)
{
    CUgraphNodeType type;
    if (REAL(cuGraphNodeGetType, node, &type) != CUDA_SUCCESS)
        return 0;
    CUgraph child;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH && REAL(cuGraphChildGraphNodeGetGraph, node, &child) == CUDA_SUCCESS)
        return graph_bytes(child, gpu, depth + 1);
    CUDA_MEM_ALLOC_NODE_PARAMS how;
    if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || REAL(cuGraphMemAllocNodeGetParams, node, &how) != CUDA_SUCCESS ||
        gpu_of(&how.poolProps.location) < 0)
        return 0;
    *gpu = gpu_of(&how.poolProps.location);
    return psg_whole_pages(*gpu, how.bytesize);
}

static CUresult keep_executable(CUresult result, CUgraphExec *executable, CUgraph graph)
{
    int gpu = -1;
    uint64_t bytes = result == CUDA_SUCCESS && psg_depth == 0 && psg_limited() ? graph_bytes(graph, &gpu, 0) : 0;
    if (bytes) {
        atomic_fetch_add(&with_memory, 1);
        psg_table_put(&(struct psg_entry){.kind = PSG_EXECUTABLE, .key = (uint64_t)(uintptr_t)*executable,
                                          .gpu = (int16_t)gpu, .bytes = bytes});
    }
    return result;
}

#define INSTANTIATES(symbol, parameters, ...)                        \
    EXPORT CUresult symbol parameters                                \
    {                                                                \
        return keep_executable(REAL(symbol, __VA_ARGS__), executable, graph); \
    }

INSTANTIATES(cuGraphInstantiate,
             (CUgraphExec *executable, CUgraph graph, CUgraphNode *failed, char *log, size_t size),
             executable, graph, failed, log, size)
INSTANTIATES(cuGraphInstantiate_v2,
             (CUgraphExec *executable, CUgraph graph, CUgraphNode *failed, char *log, size_t size),
             executable, graph, failed, log, size)
INSTANTIATES(cuGraphInstantiateWithFlags, (CUgraphExec *executable, CUgraph graph, unsigned long long flags),
             executable, graph, flags)
INSTANTIATES(cuGraphInstantiateWithParams,
             (CUgraphExec *executable, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *how), executable, graph, how)
INSTANTIATES(cuGraphInstantiateWithParams_ptsz,
             (CUgraphExec *executable, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *how), executable, graph, how)

EXPORT CUresult cuGraphExecDestroy(CUgraphExec executable)
{
    struct psg_entry entry;
    bool known = psg_depth == 0 && psg_limited() && psg_table_take(PSG_EXECUTABLE, (uint64_t)(uintptr_t)executable, &entry);
    CUresult result = REAL(cuGraphExecDestroy, executable);
    if (known && result == CUDA_SUCCESS) {
        atomic_fetch_sub(&with_memory, 1);
        psg_pools_settle(entry.gpu);
    } else if (known) {
        psg_table_put(&entry);
    }
    return result;
}

bool psg_graph_begin(CUgraphExec executable, struct psg_graph_run *run)
{
    struct psg_entry entry;
    *run = (struct psg_graph_run){.executable = executable, .gpu = -1};
    if (atomic_load_explicit(&with_memory, memory_order_relaxed) == 0 || psg_depth > 0 ||
        !psg_table_get(PSG_EXECUTABLE, (uint64_t)(uintptr_t)executable, &entry))
        return true;
    run->gpu = entry.gpu;
    run->trims = psg_pools_trims();
    /* What it took when it ran last is still its own. */
    return entry.count == run->trims + 1 || psg_graph_expect(entry.gpu, entry.bytes);
}

void psg_graph_end(const struct psg_graph_run *run, CUresult result)
{
    struct psg_entry entry;
    if (run->gpu < 0)
        return;
    if (result == CUDA_SUCCESS && psg_table_get(PSG_EXECUTABLE, (uint64_t)(uintptr_t)run->executable, &entry) &&
        entry.count != run->trims + 1) {
        entry.count = run->trims + 1;
        psg_table_put(&entry);
    }
    psg_pools_settle(run->gpu);
}

#define UPLOADS(symbol)                                              \
    EXPORT CUresult symbol(CUgraphExec executable, CUstream stream)  \
    {                                                                \
        struct psg_graph_run run;                                    \
        if (!psg_graph_begin(executable, &run))                      \
            return CUDA_ERROR_OUT_OF_MEMORY;                         \
        CUresult result = REAL(symbol, executable, stream);          \
        psg_graph_end(&run, result);                                 \
        return result;                                               \
    }

UPLOADS(cuGraphUpload)
UPLOADS(cuGraphUpload_ptsz)
