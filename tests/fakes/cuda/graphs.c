/* Graphs of the fake driver: kernels, and memory that is taken when a graph is uploaded or launched.
 *
 * Memory of graphs stays reserved on its device until it is trimmed, as NVIDIA's does.
 */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

typedef enum { NODE_KERNEL, NODE_ALLOC, NODE_FREE, NODE_CHILD, NODE_OTHER } node_kind;

struct CUgraphNode_st {
    node_kind kind;
    CUgraphNodeType type;
    uint64_t duration, bytes;
    CUdeviceptr address;
    int device;
    struct CUgraph_st *child;
    struct CUgraphNode_st *next;
};

struct CUgraph_st {
    struct CUgraphNode_st *nodes, **last;
};

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
    memory[device_of(gpu)].used -= bytes;
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
        more = each->bytes > room ? each->bytes - room : 0;
        more = (more + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
        if (more > 0 && machine_take(driver_gpu(each->device), more) != 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
        memory[each->device].reserved += more;
        memory[each->device].used += each->bytes;
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

CUresult cuGraphDestroy(CUgraph hGraph)
{
    FAULT();
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
    made->duration = nodeParams->func->duration;
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
        made->duration = as->kernel.func->duration;
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

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
    size_t room = *numNodes, count = 0;
    FAULT();
    for (struct CUgraphNode_st *each = hGraph->nodes; each != NULL; each = each->next, count++)
        if (nodes != NULL && count < room)
            nodes[count] = each;
    *numNodes = nodes != NULL && count > room ? room : count;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
    *type = hNode->type;
    return CUDA_SUCCESS;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph)
{
    *phGraph = hNode->child;
    return hNode->child ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params_out)
{
    if (hNode->kind != NODE_ALLOC)
        return CUDA_ERROR_INVALID_VALUE;
    memset(params_out, 0, sizeof *params_out);
    params_out->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params_out->poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    params_out->poolProps.location.id = hNode->device;
    params_out->bytesize = hNode->bytes;
    params_out->dptr = hNode->address;
    return CUDA_SUCCESS;
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr *dptr_out)
{
    *dptr_out = hNode->address;
    return hNode->kind == NODE_FREE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
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

static CUresult begin(CUstream stream, CUgraph graph)
{
    if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture != NULL)
        return CUDA_ERROR_ILLEGAL_STATE;
    stream->to_graph = graph != NULL;
    stream->capture = graph ? graph : new_graph();
    return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
    FAULT();
    (void)mode;
    return begin(hStream, NULL);
}

CUresult cuStreamBeginCapture(CUstream hStream)
{
    return cuStreamBeginCapture_v2(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
    const CUgraphEdgeData *dependencyData, size_t numDependencies, CUstreamCaptureMode mode)
{
    FAULT();
    (void)dependencies, (void)dependencyData, (void)numDependencies, (void)mode;
    return begin(hStream, hGraph);
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
    FAULT();
    if (!driver_capturing(hStream))
        return CUDA_ERROR_ILLEGAL_STATE;
    *phGraph = hStream->capture;
    hStream->capture = NULL;
    return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
    FAULT();
    *captureStatus = driver_capturing(hStream) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static CUresult capture_info(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, size_t *count)
{
    *status = driver_capturing(stream) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    if (!driver_capturing(stream))
        return CUDA_SUCCESS;
    if (id != NULL)
        *id = (cuuint64_t)(uintptr_t)stream->capture;
    if (graph != NULL)
        *graph = stream->capture;
    if (count != NULL)
        *count = 0;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out)
{
    FAULT();
    return capture_info(hStream, captureStatus_out, id_out, NULL, NULL);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
    CUgraph *graph_out, const CUgraphNode **dependencies_out, size_t *numDependencies_out)
{
    FAULT();
    (void)dependencies_out;
    return capture_info(hStream, captureStatus_out, id_out, graph_out, numDependencies_out);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
    CUgraph *graph_out, const CUgraphNode **dependencies_out, const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out)
{
    FAULT();
    (void)dependencies_out, (void)edgeData_out;
    return capture_info(hStream, captureStatus_out, id_out, graph_out, numDependencies_out);
}
