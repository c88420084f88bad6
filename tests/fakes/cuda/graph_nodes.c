/* Nodes of the fake driver's graphs: kernels, and memory that gets its addresses here.
 *
 * A node that allocates gets an address when it is added, that of one that is freed before it where there is one.
 */
#include "graphs.h"

#include <stdlib.h>
#include <string.h>

#define UNIT 512ULL
#define ADDRESSES (64ULL << 30) /* of a graph */

struct CUgraph_st *driver_new_graph(void)
{
    struct CUgraph_st *made = calloc(1, sizeof *made);
    made->last = &made->nodes;
    return made;
}

static struct CUgraphNode_st *add(
    struct CUgraph_st *graph, node_kind kind, CUgraphNodeType type, const CUgraphNode *after, size_t count)
{
    struct CUgraphNode_st *made = calloc(1, sizeof *made);
    made->kind = kind;
    made->type = type;
    made->after = count > 0 ? calloc(count, sizeof *made->after) : NULL;
    made->after_count = count;
    if (count > 0)
        memcpy(made->after, after, count * sizeof *made->after);
    *graph->last = graph->newest = made;
    graph->last = &made->next;
    return made;
}

struct CUgraph_st *driver_copy_graph(const struct CUgraph_st *graph)
{
    struct CUgraph_st *made = driver_new_graph();
    for (const struct CUgraphNode_st *each = graph->nodes; each != NULL; each = each->next) {
        struct CUgraphNode_st *node = add(made, each->kind, each->type, NULL, 0);
        node->duration = each->duration;
        node->bytes = each->bytes;
        node->address = each->address;
        node->device = each->device;
        if (each->child != NULL)
            node->child = driver_copy_graph(each->child);
    }
    return made;
}

void driver_free_graph(struct CUgraph_st *graph)
{
    for (struct CUgraphNode_st *each = graph->nodes, *next; each != NULL; each = next) {
        next = each->next;
        if (each->child != NULL)
            driver_free_graph(each->child);
        free(each->after);
        free(each);
    }
    free(graph);
}

int driver_has_memory(const struct CUgraph_st *graph)
{
    for (const struct CUgraphNode_st *each = graph->nodes; each != NULL; each = each->next)
        if (each->kind == NODE_ALLOC || each->kind == NODE_FREE || (each->child != NULL && driver_has_memory(each->child)))
            return 1;
    return 0;
}

/* Addresses ------------------------------------------------------------------------------------------------------- */

static int is_behind(const struct CUgraphNode_st *node, const struct CUgraphNode_st *other)
{
    for (size_t each = 0; each < node->after_count; each++)
        if (node->after[each] == other || is_behind(node->after[each], other))
            return 1;
    return 0;
}

static int overlaps(const struct CUgraphNode_st *node, CUdeviceptr address, uint64_t bytes)
{
    return node->kind == NODE_ALLOC && node->address < address + bytes && address < node->address + node->bytes;
}

/* Whether all that was allocated in a range has been freed where a node begins. */
static int is_free(const struct CUgraph_st *graph, const struct CUgraphNode_st *node, CUdeviceptr address, uint64_t bytes)
{
    for (const struct CUgraphNode_st *each = graph->nodes; each != NULL; each = each->next) {
        const struct CUgraphNode_st *freed = each->next;
        if (each == node || !overlaps(each, address, bytes))
            continue;
        while (freed != NULL && (freed->kind != NODE_FREE || freed->address != each->address))
            freed = freed->next;
        if (freed == NULL || !is_behind(node, freed))
            return 0;
    }
    return 1;
}

static CUdeviceptr address_for(struct CUgraph_st *graph, const struct CUgraphNode_st *node)
{
    for (const struct CUgraphNode_st *each = graph->nodes; each != NULL; each = each->next)
        if (each != node && each->kind == NODE_ALLOC && each->device == node->device && each->bytes >= node->bytes &&
            is_free(graph, node, each->address, node->bytes))
            return each->address;
    if (graph->addresses == 0)
        graph->addresses = graph->end = (driver_address(ADDRESSES + GRAPH_CHUNK) + GRAPH_CHUNK - 1) / GRAPH_CHUNK * GRAPH_CHUNK;
    CUdeviceptr found = graph->end;
    graph->end += (node->bytes + UNIT - 1) / UNIT * UNIT;
    return found;
}

/* Functions of the driver ----------------------------------------------------------------------------------------- */

CUresult cuGraphCreate(CUgraph *phGraph, unsigned flags)
{
    FAULT();
    if (phGraph == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *phGraph = driver_new_graph();
    return CUDA_SUCCESS;
}

struct CUuserObject_st {
    void *data;
    CUhostFn destroy;
};

CUresult cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn function, unsigned count, unsigned flags)
{
    FAULT();
    if (object_out == NULL || function == NULL || count != 1 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    *object_out = calloc(1, sizeof **object_out);
    **object_out = (struct CUuserObject_st){ptr, function};
    return CUDA_SUCCESS;
}

/* A graph has one at most, and takes over the only reference. */
CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count, unsigned flags)
{
    FAULT();
    if (graph == NULL || graph->object != NULL || count != 1 || flags != CU_GRAPH_USER_OBJECT_MOVE)
        return CUDA_ERROR_INVALID_VALUE;
    graph->object = object;
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph hGraph)
{
    FAULT();
    if (hGraph->owned)
        return CUDA_ERROR_INVALID_VALUE;
    if (hGraph->object != NULL)
        hGraph->object->destroy(hGraph->object->data);
    free(hGraph->object);
    driver_free_graph(hGraph);
    return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
    FAULT();
    if (driver_has_memory(originalGraph))
        return CUDA_ERROR_NOT_SUPPORTED; /* a graph with memory nodes cannot be cloned */
    *phGraphClone = driver_copy_graph(originalGraph);
    return CUDA_SUCCESS;
}

static CUresult add_alloc(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, const CUmemPoolProps *from,
    size_t bytes, CUdeviceptr *address)
{
    struct CUgraphNode_st *made;
    if (graph == NULL || graph->owned || bytes == 0 || bytes > ADDRESSES || from->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (from->location.id < 0 || from->location.id >= driver_devices())
        return CUDA_ERROR_INVALID_DEVICE;
    made = add(graph, NODE_ALLOC, CU_GRAPH_NODE_TYPE_MEM_ALLOC, after, count);
    made->bytes = bytes;
    made->device = from->location.id;
    pthread_mutex_lock(&driver_lock);
    made->address = *address = address_for(graph, made);
    pthread_mutex_unlock(&driver_lock);
    if (node != NULL)
        *node = made;
    return CUDA_SUCCESS;
}

/* What a graph allocates it frees once, behind that; what it did not allocate another one may have. */
static int may_free(const struct CUgraph_st *graph, const CUgraphNode *after, size_t count, CUdeviceptr address)
{
    const struct CUgraphNode_st *open = NULL;
    int own = 0;
    for (const struct CUgraphNode_st *each = graph->nodes; each != NULL; each = each->next) {
        own |= each->kind == NODE_ALLOC && each->address == address;
        if (each->kind == NODE_ALLOC && each->address == address)
            open = each;
        if (each->kind == NODE_FREE && each->address == address)
            open = NULL;
    }
    for (size_t each = 0; each < count && open != NULL; each++)
        if (after[each] == open || is_behind(after[each], open))
            return 1;
    return !own;
}

static CUresult add_free(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, CUdeviceptr address)
{
    struct CUgraphNode_st *made;
    if (graph->owned || !may_free(graph, after, count, address))
        return CUDA_ERROR_INVALID_VALUE;
    made = add(graph, NODE_FREE, CU_GRAPH_NODE_TYPE_MEM_FREE, after, count);
    made->address = address;
    if (node != NULL)
        *node = made;
    return CUDA_SUCCESS;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
    size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
    FAULT();
    return add_alloc(phGraphNode, hGraph, dependencies, numDependencies, &nodeParams->poolProps, nodeParams->bytesize, &nodeParams->dptr);
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
    size_t numDependencies, CUdeviceptr dptr)
{
    FAULT();
    return add_free(phGraphNode, hGraph, dependencies, numDependencies, dptr);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
    size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    struct CUgraphNode_st *made;
    FAULT();
    made = add(hGraph, NODE_KERNEL, CU_GRAPH_NODE_TYPE_KERNEL, dependencies, numDependencies);
    made->duration = driver_duration(nodeParams->func, nodeParams->gridDimX, nodeParams->gridDimY, nodeParams->gridDimZ);
    *phGraphNode = made;
    return CUDA_SUCCESS;
}

/* A graph with memory cannot be copied, and one that was moved has one place only. */
static CUresult add_child(
    CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, CUgraph child, int moved)
{
    struct CUgraphNode_st *made;
    if (driver_has_memory(child) && !moved)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (child->owned)
        return CUDA_ERROR_INVALID_VALUE;
    made = add(graph, NODE_CHILD, CU_GRAPH_NODE_TYPE_GRAPH, after, count);
    made->child = moved ? child : driver_copy_graph(child);
    made->child->owned = 1;
    *node = made;
    return CUDA_SUCCESS;
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
    size_t numDependencies, CUgraph childGraph)
{
    FAULT();
    return add_child(phGraphNode, hGraph, dependencies, numDependencies, childGraph, 0);
}

static CUresult add_any(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, CUgraphNodeParams *as)
{
    switch (as->type) {
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return add_alloc(node, graph, after, count, &as->alloc.poolProps, as->alloc.bytesize, &as->alloc.dptr);
    case CU_GRAPH_NODE_TYPE_MEM_FREE: return add_free(node, graph, after, count, as->free.dptr);
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        struct CUgraphNode_st *made = add(graph, NODE_KERNEL, as->type, after, count);
        made->duration =
            driver_duration(as->kernel.func, as->kernel.gridDimX, as->kernel.gridDimY, as->kernel.gridDimZ);
        *node = made;
        return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return add_child(node, graph, after, count, as->graph.graph,
            machine()->cuda >= 12090 && as->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE);
    case CU_GRAPH_NODE_TYPE_EMPTY: *node = add(graph, NODE_OTHER, as->type, after, count); return CUDA_SUCCESS;
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
    const CUgraphEdgeData *dependencyData, size_t numDependencies, CUgraphNodeParams *nodeParams)
{
    FAULT();
    (void)dependencyData;
    return add_any(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

CUresult cuGraphAddNode_v3(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
    const CUgraphEdgeData *dependencyData, size_t numDependencies, CUgraphNodeParams *nodeParams)
{
    FAULT();
    (void)dependencyData;
    return add_any(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

CUresult cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
    size_t numDependencies, CUgraphNodeParams *nodeParams)
{
    FAULT();
    return add_any(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

/* What is captured comes behind all that was captured before. */
static size_t behind(const struct CUgraph_st *graph)
{
    return graph->newest != NULL ? 1 : 0;
}

CUresult driver_capture_kernel(CUstream stream, uint64_t duration)
{
    struct CUgraph_st *graph = stream->capture;
    add(graph, NODE_KERNEL, CU_GRAPH_NODE_TYPE_KERNEL, &graph->newest, behind(graph))->duration = duration;
    return CUDA_SUCCESS;
}

CUresult driver_capture_alloc(CUstream stream, CUdeviceptr *address, uint64_t bytes)
{
    struct CUgraph_st *graph = stream->capture;
    CUmemPoolProps from = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = stream->context->device}};
    return add_alloc(NULL, graph, &graph->newest, behind(graph), &from, bytes, address);
}

CUresult driver_capture_free(CUstream stream, CUdeviceptr address)
{
    struct CUgraph_st *graph = stream->capture;
    return add_free(NULL, graph, &graph->newest, behind(graph), address);
}
