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

static int gpu_of(const CUmemPoolProps *from)
{
    return psg_gpu_of_memory(from->allocType, &from->location);
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

/* A node that allocates and is about to be added. */
struct addition {
    int gpu; /* -1: nothing is charged here */
    uint64_t bytes;
};

/* False: the limit forbids it. */
static bool begin_add(struct addition *addition, const CUmemPoolProps *from, uint64_t size)
{
    addition->gpu = psg_depth == 0 && psg_limited() && from ? gpu_of(from) : -1;
    if (addition->gpu < 0)
        return true;
    addition->bytes = psg_whole_pages(addition->gpu, size);
    return addition->bytes <= PSG_USED_MASK && psg_graph_nodes(addition->gpu, (int64_t)addition->bytes);
}

static CUresult end_add(const struct addition *addition, CUresult result, const CUgraphNode *node, CUgraph graph)
{
    if (addition->gpu >= 0 && result == CUDA_SUCCESS)
        keep_node(*node, graph, addition->gpu, addition->bytes);
    else if (addition->gpu >= 0)
        psg_graph_nodes(addition->gpu, -(int64_t)addition->bytes);
    return result;
}

/* Asks the driver by `call` for a node that allocates so much in a place, or does something else where that is null. */
#define ADDED(from, size, call) ({                               \
        struct addition addition;                                    \
        bool fits = begin_add(&addition, from, size);            \
        fits ? end_add(&addition, call, node, graph) : CUDA_ERROR_OUT_OF_MEMORY; \
    })

#define ALLOCATES (how && how->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
#define FROM (ALLOCATES ? &how->alloc.poolProps : NULL)
#define SIZE (ALLOCATES ? how->alloc.bytesize : 0)

EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                                       CUDA_MEM_ALLOC_NODE_PARAMS *how)
{
    return ADDED(how ? &how->poolProps : NULL, how ? how->bytesize : 0,
                 REAL(cuGraphAddMemAllocNode, node, graph, after, count, how));
}

EXPORT CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                               CUgraphNodeParams *how)
{
    return ADDED(FROM, SIZE, REAL(cuGraphAddNode, node, graph, after, count, how));
}

EXPORT CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                  const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *how)
{
    return ADDED(FROM, SIZE, REAL(cuGraphAddNode_v2, node, graph, after, edges, count, how));
}

EXPORT CUresult cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                  const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *how)
{
    return ADDED(FROM, SIZE, REAL(cuGraphAddNode_v3, node, graph, after, edges, count, how));
}

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

/* Bytes by GPU. */
struct sizes {
    uint64_t bytes[PSG_GPUS];
};

static void add_node(CUgraphNode node, struct sizes *sizes, int depth);

static void add_graph(CUgraph graph, struct sizes *sizes, int depth)
{
    size_t count = 0;
    if (depth > DEEPEST || REAL(cuGraphGetNodes, graph, NULL, &count) != CUDA_SUCCESS || count == 0)
        return;
    CUgraphNode *nodes = calloc(count, sizeof *nodes);
    if (nodes && REAL(cuGraphGetNodes, graph, nodes, &count) == CUDA_SUCCESS)
        for (size_t i = 0; i < count; i++)
            add_node(nodes[i], sizes, depth);
    free(nodes);
}

static void add_node(CUgraphNode node, struct sizes *sizes, int depth)
{
    CUgraph child;
    CUgraphNodeType type;
    CUDA_MEM_ALLOC_NODE_PARAMS how;
    if (REAL(cuGraphNodeGetType, node, &type) != CUDA_SUCCESS)
        return;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH && REAL(cuGraphChildGraphNodeGetGraph, node, &child) == CUDA_SUCCESS)
        add_graph(child, sizes, depth + 1);
    if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || REAL(cuGraphMemAllocNodeGetParams, node, &how) != CUDA_SUCCESS)
        return;
    int gpu = gpu_of(&how.poolProps);
    if (gpu >= 0)
        sizes->bytes[gpu] += psg_whole_pages(gpu, how.bytesize);
}

/* An executable graph has an entry for each GPU of which it has memory. */
static uint64_t key_of(CUgraphExec executable, int gpu)
{
    return (uint64_t)(uintptr_t)executable * PSG_GPUS + (uint64_t)gpu;
}

static CUresult keep_executable(CUresult result, CUgraphExec *executable, CUgraph graph)
{
    struct sizes sizes = {{0}};
    if (result == CUDA_SUCCESS && psg_depth == 0 && psg_limited())
        add_graph(graph, &sizes, 0);
    for (int gpu = 0; gpu < PSG_GPUS; gpu++)
        if (sizes.bytes[gpu] &&
            psg_table_put(&(struct psg_entry){.kind = PSG_EXECUTABLE, .key = key_of(*executable, gpu), .gpu = (int16_t)gpu,
                                              .bytes = sizes.bytes[gpu]}))
            atomic_fetch_add(&with_memory, 1);
    return result;
}

EXPORT CUresult cuGraphInstantiate(CUgraphExec *executable, CUgraph graph, CUgraphNode *failed, char *log, size_t size)
{
    return keep_executable(REAL(cuGraphInstantiate, executable, graph, failed, log, size), executable, graph);
}

EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *executable, CUgraph graph, CUgraphNode *failed, char *log, size_t size)
{
    return keep_executable(REAL(cuGraphInstantiate_v2, executable, graph, failed, log, size), executable, graph);
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long flags)
{
    return keep_executable(REAL(cuGraphInstantiateWithFlags, executable, graph, flags), executable, graph);
}

EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *executable, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *how)
{
    return keep_executable(REAL(cuGraphInstantiateWithParams, executable, graph, how), executable, graph);
}

EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *executable, CUgraph graph,
                                                  CUDA_GRAPH_INSTANTIATE_PARAMS *how)
{
    return keep_executable(REAL(cuGraphInstantiateWithParams_ptsz, executable, graph, how), executable, graph);
}

static bool has_memory(CUgraphExec executable, int gpu, struct psg_entry *entry)
{
    return psg_table_get(PSG_EXECUTABLE, key_of(executable, gpu), entry);
}

/* The entries leave the table before the driver destroys, for the same name may be given out again at once. */
EXPORT CUresult cuGraphExecDestroy(CUgraphExec executable)
{
    struct psg_entry entries[PSG_GPUS];
    unsigned count = 0;
    for (int gpu = 0; psg_depth == 0 && atomic_load(&with_memory) && gpu < (int)psg_gpus(); gpu++)
        count += psg_table_take(PSG_EXECUTABLE, key_of(executable, gpu), &entries[count]);
    CUresult result = REAL(cuGraphExecDestroy, executable);
    for (unsigned i = 0; i < count; i++) {
        if (result != CUDA_SUCCESS) {
            psg_table_put(&entries[i]);
            continue;
        }
        atomic_fetch_sub(&with_memory, 1);
        psg_pools_settle(entries[i].gpu);
    }
    return result;
}

/* Takes back what was expected of the GPUs before one. */
static void settle_below(CUgraphExec executable, int end)
{
    struct psg_entry entry;
    for (int gpu = 0; gpu < end; gpu++)
        if (has_memory(executable, gpu, &entry))
            psg_pools_settle(gpu);
}

bool psg_graph_begin(CUgraphExec executable, struct psg_graph_run *run)
{
    struct psg_entry entry;
    *run = (struct psg_graph_run){.executable = executable, .trims = psg_pools_trims()};
    if (atomic_load_explicit(&with_memory, memory_order_relaxed) == 0 || psg_depth > 0)
        return true;
    for (int gpu = 0; gpu < (int)psg_gpus(); gpu++) {
        if (!has_memory(executable, gpu, &entry))
            continue;
        run->charged = true;
        /* What it took when it ran last is still its own. */
        if (entry.count != run->trims + 1 && !psg_graph_expect(gpu, entry.bytes)) {
            settle_below(executable, gpu);
            return false;
        }
    }
    return true;
}

void psg_graph_end(const struct psg_graph_run *run, CUresult result)
{
    struct psg_entry entry;
    for (int gpu = 0; run->charged && gpu < (int)psg_gpus(); gpu++) {
        if (!has_memory(run->executable, gpu, &entry))
            continue;
        if (result == CUDA_SUCCESS && entry.count != run->trims + 1) {
            entry.count = run->trims + 1;
            psg_table_put(&entry);
        }
        psg_pools_settle(gpu);
    }
}

EXPORT CUresult cuGraphUpload(CUgraphExec executable, CUstream stream)
{
    return PSG_RUN(executable, REAL(cuGraphUpload, executable, stream));
}

EXPORT CUresult cuGraphUpload_ptsz(CUgraphExec executable, CUstream stream)
{
    return PSG_RUN(executable, REAL(cuGraphUpload_ptsz, executable, stream));
}
