/* Memory of graphs. A node has an address only: the driver takes memory when a graph that holds such nodes (added, captured
 * or in a child graph) is uploaded or launched, in chunks, each for so many of its addresses. So nodes that do not live at
 * once, which the driver gives the same addresses, count once; what graphs share among each other, pools.c knows. */
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "account.h"
#include "device.h"
#include "driver.h"
#include "graph.h"
#include "limits.h"
#include "pools.h"
#include "record.h"
#include "table.h"

/* A graph inside a graph inside a graph …: deeper than anybody builds. */
enum { DEEPEST = 32 };

static atomic_uint with_memory;

/* Memory that a graph allocates, or frees where it has no end. */
struct piece {
    uint64_t begin, end;
    int gpu;
};

struct pieces {
    struct piece *list;
    size_t count, room;
};

static void add_piece(struct pieces *pieces, struct piece piece)
{
    if (pieces->count == pieces->room) {
        size_t room = pieces->room ? 2 * pieces->room : 64;
        struct piece *wider = realloc(pieces->list, room * sizeof *wider);
        if (!wider)
            return;
        pieces->list = wider;
        pieces->room = room;
    }
    pieces->list[pieces->count++] = piece;
}

static void add_node(CUgraphNode node, struct pieces *pieces, int depth);

static void add_graph(CUgraph graph, struct pieces *pieces, int depth)
{
    size_t count = 0;
    if (depth > DEEPEST || REAL(cuGraphGetNodes, graph, NULL, &count) != CUDA_SUCCESS || count == 0)
        return;
    CUgraphNode *nodes = calloc(count, sizeof *nodes);
    if (nodes && REAL(cuGraphGetNodes, graph, nodes, &count) == CUDA_SUCCESS)
        for (size_t i = 0; i < count; i++)
            add_node(nodes[i], pieces, depth);
    free(nodes);
}

static void add_node(CUgraphNode node, struct pieces *pieces, int depth)
{
    CUgraph child;
    CUdeviceptr freed;
    CUgraphNodeType type;
    CUDA_MEM_ALLOC_NODE_PARAMS how;
    if (REAL(cuGraphNodeGetType, node, &type) != CUDA_SUCCESS)
        return;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH && REAL(cuGraphChildGraphNodeGetGraph, node, &child) == CUDA_SUCCESS)
        add_graph(child, pieces, depth + 1);
    if (type == CU_GRAPH_NODE_TYPE_MEM_FREE && REAL(cuGraphMemFreeNodeGetParams, node, &freed) == CUDA_SUCCESS)
        add_piece(pieces, (struct piece){freed, 0, 0});
    if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || REAL(cuGraphMemAllocNodeGetParams, node, &how) != CUDA_SUCCESS)
        return;
    int gpu = psg_gpu_of_memory(how.poolProps.allocType, &how.poolProps.location);
    if (gpu >= 0)
        add_piece(pieces, (struct piece){how.dptr, how.dptr + how.bytesize, gpu});
}

/* By their places, the larger one first. */
static int compare(const void *one, const void *other)
{
    const struct piece *a = one, *b = other;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->end > b->end ? -1 : a->end < b->end;
}

/* What an executable graph takes of each GPU, and whether more is allocated there than freed. */
struct needs {
    uint64_t bytes[PSG_GPUS];
    bool leaves[PSG_GPUS];
};

/* What does not fit into chunks that are there gets as many as it fills. */
static void add_chunks(const struct piece *piece, struct needs *needs, uint64_t *next)
{
    uint64_t fills = (piece->end - piece->begin + PSG_CHUNK - 1) / PSG_CHUNK;
    uint64_t first = larger(piece->begin / PSG_CHUNK, next[piece->gpu]), end = (piece->end - 1) / PSG_CHUNK + 1;
    if (piece->end <= piece->begin || first >= end)
        return;
    needs->bytes[piece->gpu] += larger(end - first, fills) * PSG_CHUNK;
    next[piece->gpu] = end;
}

static struct needs needs_of(CUgraph graph)
{
    struct pieces pieces = {0};
    struct needs needs = {0};
    uint64_t next[PSG_GPUS] = {0};
    add_graph(graph, &pieces, 0);
    if (pieces.count)
        qsort(pieces.list, pieces.count, sizeof *pieces.list, compare);
    for (size_t i = 0, end; i < pieces.count; i = end) {
        long left = 0;
        int gpu = 0;
        for (end = i; end < pieces.count && pieces.list[end].begin == pieces.list[i].begin; end++) {
            bool freed = pieces.list[end].end == 0;
            left += freed ? -1 : 1;
            gpu = freed ? gpu : pieces.list[end].gpu;
            if (!freed)
                add_chunks(&pieces.list[end], &needs, next);
        }
        needs.leaves[gpu] |= left > 0;
    }
    free(pieces.list);
    return needs;
}

/* Executable graphs ----------------------------------------------------------------------------------------------- */

/* An executable graph has an entry for each GPU of which it has memory. */
static uint64_t key_of(CUgraphExec executable, int gpu)
{
    return (uint64_t)(uintptr_t)executable * PSG_GPUS + (uint64_t)gpu;
}

static CUresult keep_executable(CUresult result, CUgraphExec *executable, CUgraph graph)
{
    if (result != CUDA_SUCCESS || psg_depth > 0 || !psg_limited())
        return result;
    struct needs needs = needs_of(graph);
    for (int gpu = 0; gpu < PSG_GPUS; gpu++)
        if (needs.bytes[gpu] &&
            psg_table_put(&(struct psg_entry){.kind = PSG_EXECUTABLE, .key = key_of(*executable, gpu), .gpu = (int16_t)gpu,
                                              .bytes = needs.bytes[gpu], .count = needs.leaves[gpu]}))
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

static bool has_memory(CUgraphExec executable, int gpu, struct psg_entry *entry)
{
    return psg_table_get(PSG_EXECUTABLE, key_of(executable, gpu), entry);
}

/* The entries leave the table before the driver destroys, for the same name may be given out again at once. */
static CUresult destroy(CUgraphExec executable)
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

EXPORT CUresult cuGraphExecDestroy(CUgraphExec executable)
{
    return destroy(executable);
}

/* Takes back what was expected of the GPUs before one. */
static void settle_below(CUgraphExec executable, int end)
{
    struct psg_entry entry;
    for (int gpu = 0; gpu < end; gpu++)
        if (has_memory(executable, gpu, &entry))
            psg_pools_settle(gpu);
}

/* What runs on a stream one after the other shares memory, but for what is left allocated. Default streams are others in each
 * context, or thread. */
static uint64_t order_of(CUgraphExec executable, bool leaves, CUstream stream)
{
    CUcontext context = NULL;
    if (leaves)
        return (uint64_t)(uintptr_t)executable;
    if (stream && stream != CU_STREAM_LEGACY)
        return (uint64_t)(uintptr_t)(stream == CU_STREAM_PER_THREAD ? (void *)&psg_depth : (void *)stream);
    REAL(cuCtxGetCurrent, &context);
    return (uint64_t)(uintptr_t)context;
}

static bool is_busy(CUstream stream)
{
    CUstreamCaptureMode mode;
    psg_asking_begin(&mode);
    bool busy = psg_may_ask(stream) && REAL(cuStreamQuery, stream) == CUDA_ERROR_NOT_READY;
    psg_asking_end(&mode);
    return busy;
}

enum { MOMENT = 200 }; /* in microseconds */

/* Where there is no room, what the stream has to do before may hold what it then gives back. */
static bool expect(const struct psg_entry *entry, CUgraphExec executable, CUstream stream)
{
    uint64_t order = order_of(executable, entry->count, stream);
    if (psg_graph_expect(entry->gpu, order, entry->bytes))
        return true;
    for (uint64_t waited = 0; waited < PSG_ENDLESS && is_busy(stream); waited += MOMENT * 1000)
        usleep(MOMENT);
    if (psg_graph_expect(entry->gpu, order, entry->bytes))
        return true;
    psg_count_refusal(entry->gpu);
    return false;
}

bool psg_graph_begin(CUgraphExec executable, CUstream stream, bool *charged)
{
    struct psg_entry entry;
    *charged = false;
    if (atomic_load_explicit(&with_memory, memory_order_relaxed) == 0 || psg_depth > 0)
        return true;
    for (int gpu = 0; gpu < (int)psg_gpus(); gpu++) {
        if (!has_memory(executable, gpu, &entry))
            continue;
        *charged = true;
        if (!expect(&entry, executable, stream)) {
            settle_below(executable, gpu);
            return false;
        }
    }
    return true;
}

void psg_graph_end(CUgraphExec executable, bool charged)
{
    if (charged)
        settle_below(executable, (int)psg_gpus());
}

EXPORT CUresult cuGraphUpload(CUgraphExec executable, CUstream stream)
{
    return PSG_RUN(executable, stream, REAL(cuGraphUpload, executable, stream));
}

EXPORT CUresult cuGraphUpload_ptsz(CUgraphExec executable, CUstream stream)
{
    return PSG_RUN(executable, stream ? stream : CU_STREAM_PER_THREAD, REAL(cuGraphUpload_ptsz, executable, stream));
}

static CUresult upload_made(CUresult made, CUgraphExec *executable, CUDA_GRAPH_INSTANTIATE_PARAMS *how, CUstream stream)
{
    if (made != CUDA_SUCCESS)
        return made;
    made = PSG_RUN(*executable, stream, REAL(cuGraphUpload, *executable, stream));
    if (made != CUDA_SUCCESS) {
        destroy(*executable);
        how->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
    }
    return made;
}

/* Makes a graph executable by `call`. What it takes is known behind that only, and so it is uploaded then. */
#define MADE(used_stream, call) ({                                   \
        cuuint64_t flags = how ? how->flags : 0;                     \
        bool uploads = psg_depth == 0 && psg_limited() && (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD); \
        if (uploads)                                                 \
            how->flags = flags & ~(cuuint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD; \
        CUresult made = keep_executable(call, executable, graph);    \
        if (uploads) {                                               \
            how->flags = flags;                                      \
            made = upload_made(made, executable, how, used_stream);  \
        }                                                            \
        made;                                                        \
    })

EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *executable, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *how)
{
    return MADE(how->hUploadStream, REAL(cuGraphInstantiateWithParams, executable, graph, how));
}

EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *executable, CUgraph graph,
                                                  CUDA_GRAPH_INSTANTIATE_PARAMS *how)
{
    return MADE(how->hUploadStream ? how->hUploadStream : CU_STREAM_PER_THREAD,
                REAL(cuGraphInstantiateWithParams_ptsz, executable, graph, how));
}
