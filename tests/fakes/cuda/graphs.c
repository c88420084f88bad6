/* Graphs of the fake driver: kernels, and memory that is taken when a graph is uploaded or launched.
 *
 * Memory of graphs stays reserved on its device until it is trimmed, as NVIDIA's does.
 */
#include "graphs.h"

#include <stdlib.h>
#include <string.h>

struct CUgraphExec_st {
    struct CUgraph_st *graph;
};

static struct {
    uint64_t reserved, reserved_high, used, used_high;
} memory[DRIVER_GPUS]; /* of each visible device */

static struct CUgraph_st *new_graph(void)
{
    struct CUgraph_st *made = calloc(1, sizeof *made);
    made->last = &made->nodes;
    return made;
}

static struct CUgraphNode_st *add(struct CUgraph_st *graph, node_kind kind, CUgraphNodeType type)
{
    struct CUgraphNode_st *made = calloc(1, sizeof *made);
    made->kind = kind;
    made->type = type;
    *graph->last = made;
    graph->last = &made->next;
    return made;
}

static struct CUgraph_st *copy(const struct CUgraph_st *graph)
{
    struct CUgraph_st *made = new_graph();
    for (const struct CUgraphNode_st *each = graph->nodes; each != NULL; each = each->next) {
        struct CUgraphNode_st *node = add(made, each->kind, each->type);
        struct CUgraphNode_st *next = node->next;
        *node = *each;
        node->next = next;
        if (each->child != NULL)
            node->child = copy(each->child);
    }
    return made;
}

static void destroy(struct CUgraph_st *graph)
{
    for (struct CUgraphNode_st *each = graph->nodes, *next; each != NULL; each = next) {
        next = each->next;
        if (each->child != NULL)
            destroy(each->child);
        free(each);
    }
    free(graph);
}

static int device_of(unsigned gpu)
{
    for (int device = 0; device < driver_devices(); device++)
        if (driver_gpu(device) == gpu)
            return device;
    return 0;
}

void driver_graph_give(unsigned gpu, uint64_t bytes)
{
    memory[device_of(gpu)].used -= driver_pages(bytes);
}

/* Takes the memory of all allocation nodes; at a failure nothing is taken. */
static CUresult take(const struct CUgraph_st *graph)
{
    for (const struct CUgraphNode_st *each = graph->nodes; each != NULL; each = each->next) {
        uint64_t room, more;
        if (each->kind == NODE_CHILD && take(each->child) != CUDA_SUCCESS)
            return CUDA_ERROR_OUT_OF_MEMORY;
        if (each->kind != NODE_ALLOC || driver_find(each->address) != NULL)
            continue;
        room = memory[each->device].reserved - memory[each->device].used;
        more = driver_pages(each->bytes) > room ? driver_pages(each->bytes) - room : 0;
        if (more > 0 && machine_take(driver_gpu(each->device), more) != 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
        memory[each->device].reserved += more;
        memory[each->device].used += driver_pages(each->bytes);
        if (memory[each->device].reserved > memory[each->device].reserved_high)
            memory[each->device].reserved_high = memory[each->device].reserved;
        if (memory[each->device].used > memory[each->device].used_high)
            memory[each->device].used_high = memory[each->device].used;
        driver_add(each->address, each->bytes, BLOCK_GRAPH, driver_gpu(each->device));
    }
    return CUDA_SUCCESS;
}

static uint64_t run(const struct CUgraph_st *graph)
{
    uint64_t duration = 0;
    for (const struct CUgraphNode_st *each = graph->nodes; each != NULL; each = each->next) {
        duration += each->duration;
        if (each->child != NULL)
            duration += run(each->child);
        if (each->kind == NODE_FREE) {
            block *found = driver_remove(each->address);
            if (found != NULL && found->kind == BLOCK_GRAPH)
                driver_graph_give(found->gpu, found->bytes);
            free(found);
        }
    }
    return duration;
}

CUresult cuGraphCreate(CUgraph *phGraph, unsigned flags)
{
    FAULT();
    if (phGraph == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *phGraph = new_graph();
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
    if (hGraph->object != NULL)
        hGraph->object->destroy(hGraph->object->data);
    free(hGraph->object);
    destroy(hGraph);
    return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
    FAULT();
    for (const struct CUgraphNode_st *each = originalGraph->nodes; each != NULL; each = each->next)
        if (each->kind == NODE_ALLOC || each->kind == NODE_FREE)
            return CUDA_ERROR_NOT_SUPPORTED; /* a graph with memory nodes cannot be cloned */
    *phGraphClone = copy(originalGraph);
    return CUDA_SUCCESS;
}

static CUresult add_alloc(CUgraphNode *node, CUgraph graph, const CUmemPoolProps *from, size_t bytes, CUdeviceptr *address)
{
    struct CUgraphNode_st *made;
    if (graph == NULL || bytes == 0 || from->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (from->location.id < 0 || from->location.id >= driver_devices())
        return CUDA_ERROR_INVALID_DEVICE;
    made = add(graph, NODE_ALLOC, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    made->bytes = bytes;
    made->device = from->location.id;
    pthread_mutex_lock(&driver_lock);
    made->address = *address = driver_address(bytes);
    pthread_mutex_unlock(&driver_lock);
    if (node != NULL)
        *node = made;
    return CUDA_SUCCESS;
}

static CUresult add_free(CUgraphNode *node, CUgraph graph, CUdeviceptr address)
{
    struct CUgraphNode_st *made = add(graph, NODE_FREE, CU_GRAPH_NODE_TYPE_MEM_FREE);
    made->address = address;
    if (node != NULL)
        *node = made;
    return CUDA_SUCCESS;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
    size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
    FAULT();
    (void)dependencies, (void)numDependencies;
    return add_alloc(phGraphNode, hGraph, &nodeParams->poolProps, nodeParams->bytesize, &nodeParams->dptr);
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
    size_t numDependencies, CUdeviceptr dptr)
{
    FAULT();
    (void)dependencies, (void)numDependencies;
    return add_free(phGraphNode, hGraph, dptr);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
    size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    struct CUgraphNode_st *made;
    FAULT();
    (void)dependencies, (void)numDependencies;
    made = add(hGraph, NODE_KERNEL, CU_GRAPH_NODE_TYPE_KERNEL);
    made->duration = driver_duration(nodeParams->func, nodeParams->gridDimX, nodeParams->gridDimY, nodeParams->gridDimZ);
    *phGraphNode = made;
    return CUDA_SUCCESS;
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
    size_t numDependencies, CUgraph childGraph)
{
    struct CUgraphNode_st *made;
    FAULT();
    (void)dependencies, (void)numDependencies;
    made = add(hGraph, NODE_CHILD, CU_GRAPH_NODE_TYPE_GRAPH);
    made->child = copy(childGraph);
    *phGraphNode = made;
    return CUDA_SUCCESS;
}

static CUresult add_any(CUgraphNode *node, CUgraph graph, CUgraphNodeParams *as)
{
    switch (as->type) {
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return add_alloc(node, graph, &as->alloc.poolProps, as->alloc.bytesize, &as->alloc.dptr);
    case CU_GRAPH_NODE_TYPE_MEM_FREE: return add_free(node, graph, as->free.dptr);
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        struct CUgraphNode_st *made = add(graph, NODE_KERNEL, as->type);
        made->duration =
            driver_duration(as->kernel.func, as->kernel.gridDimX, as->kernel.gridDimY, as->kernel.gridDimZ);
        *node = made;
        return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_GRAPH: return cuGraphAddChildGraphNode(node, graph, NULL, 0, as->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY: *node = add(graph, NODE_OTHER, as->type); return CUDA_SUCCESS;
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
    const CUgraphEdgeData *dependencyData, size_t numDependencies, CUgraphNodeParams *nodeParams)
{
    FAULT();
    (void)dependencies, (void)dependencyData, (void)numDependencies;
    return add_any(phGraphNode, hGraph, nodeParams);
}

CUresult cuGraphAddNode_v3(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
    const CUgraphEdgeData *dependencyData, size_t numDependencies, CUgraphNodeParams *nodeParams)
{
    FAULT();
    (void)dependencies, (void)dependencyData, (void)numDependencies;
    return add_any(phGraphNode, hGraph, nodeParams);
}

CUresult cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
    size_t numDependencies, CUgraphNodeParams *nodeParams)
{
    FAULT();
    (void)dependencies, (void)numDependencies;
    return add_any(phGraphNode, hGraph, nodeParams);
}

static CUresult instantiate(CUgraphExec *exec, CUgraph graph)
{
    if (exec == NULL || graph == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *exec = calloc(1, sizeof **exec);
    (*exec)->graph = copy(graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
{
    FAULT();
    (void)flags;
    return instantiate(phGraphExec, hGraph);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    CUresult code;
    FAULT();
    code = instantiate(phGraphExec, hGraph);
    params->result_out = code == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    if (code == CUDA_SUCCESS && (params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD))
        return cuGraphUpload(*phGraphExec, params->hUploadStream);
    return code;
}

CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize)
{
    FAULT();
    (void)phErrorNode, (void)logBuffer, (void)bufferSize;
    return instantiate(phGraphExec, hGraph);
}

CUresult cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize)
{
    FAULT();
    (void)phErrorNode, (void)logBuffer, (void)bufferSize;
    return instantiate(phGraphExec, hGraph);
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    FAULT();
    destroy(hGraphExec->graph);
    free(hGraphExec);
    return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream)
{
    CUresult code;
    FAULT();
    (void)hStream;
    pthread_mutex_lock(&driver_lock);
    code = take(hGraphExec->graph);
    pthread_mutex_unlock(&driver_lock);
    return code;
}

CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
    uint64_t duration;
    CUresult code;
    FAULT();
    if (driver_stream_context(hStream) == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&driver_lock);
    code = take(hGraphExec->graph);
    duration = code == CUDA_SUCCESS ? run(hGraphExec->graph) : 0;
    pthread_mutex_unlock(&driver_lock);
    return code != CUDA_SUCCESS ? code : driver_queue(hStream, duration);
}

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    FAULT();
    if (device < 0 || device >= driver_devices())
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&driver_lock);
    machine_give(driver_gpu(device), memory[device].reserved - memory[device].used);
    memory[device].reserved = memory[device].used;
    pthread_mutex_unlock(&driver_lock);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
    FAULT();
    if (device < 0 || device >= driver_devices())
        return CUDA_ERROR_INVALID_DEVICE;
    switch (attr) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT: *(cuuint64_t *)value = memory[device].used; break;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH: *(cuuint64_t *)value = memory[device].used_high; break;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT: *(cuuint64_t *)value = memory[device].reserved; break;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH: *(cuuint64_t *)value = memory[device].reserved_high; break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

struct CUgraph_st *driver_new_graph(void)
{
    return new_graph();
}

CUresult driver_capture_kernel(CUstream stream, uint64_t duration)
{
    add(stream->capture, NODE_KERNEL, CU_GRAPH_NODE_TYPE_KERNEL)->duration = duration;
    return CUDA_SUCCESS;
}

CUresult driver_capture_alloc(CUstream stream, CUdeviceptr *address, uint64_t bytes)
{
    CUmemPoolProps from = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = stream->context->device}};
    return add_alloc(NULL, stream->capture, &from, bytes, address);
}

CUresult driver_capture_free(CUstream stream, CUdeviceptr address)
{
    return add_free(NULL, stream->capture, address);
}
