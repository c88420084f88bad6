/* Graphs of the fake driver: kernels, and memory that is taken when a graph is uploaded or launched.
 *
 * A node that allocates gets an address when it is added, that of one that is freed before it where there is one. Memory
 * comes in chunks, each for so many addresses of a graph. Graphs that do not run at the same time share it, and it stays
 * reserved on its device until it is trimmed. All of this is as an H200 does it, and as it tells of it: what is reserved
 * counts as in use.
 */
#include "graphs.h"

#include <stdlib.h>
#include <string.h>

#define RUNS 256
#define CHUNK (32ULL << 20)
#define UNIT 512ULL
#define ADDRESSES (64ULL << 30) /* of a graph */

struct CUgraphExec_st {
    struct CUgraph_st *graph;
    unsigned *all; /* of the same graph */
    uint64_t needs[DRIVER_GPUS]; /* memory of each visible device */
    int frees_on_launch;
};

/* Memory that is bound to a graph that runs, less what it leaves allocated; one of each stream. */
static struct {
    CUstream stream;
    uint64_t bytes[DRIVER_GPUS];
    unsigned gpu; /* of the stream, which ends the run at that moment */
    uint64_t until;
} runs[RUNS];

static struct {
    uint64_t reserved, reserved_high, left;
} memory[DRIVER_GPUS]; /* of each visible device; `left` is what graphs have allocated and nobody has freed */

static struct CUgraph_st *new_graph(void)
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

static struct CUgraph_st *copy(const struct CUgraph_st *graph)
{
    struct CUgraph_st *made = new_graph();
    for (const struct CUgraphNode_st *each = graph->nodes; each != NULL; each = each->next) {
        struct CUgraphNode_st *node = add(made, each->kind, each->type, NULL, 0);
        node->duration = each->duration;
        node->bytes = each->bytes;
        node->address = each->address;
        node->device = each->device;
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
        free(each->after);
        free(each);
    }
    free(graph);
}

static int has_memory(const struct CUgraph_st *graph)
{
    for (const struct CUgraphNode_st *each = graph->nodes; each != NULL; each = each->next)
        if (each->kind == NODE_ALLOC || each->kind == NODE_FREE || (each->child != NULL && has_memory(each->child)))
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
        graph->addresses = graph->end = (driver_address(ADDRESSES + CHUNK) + CHUNK - 1) / CHUNK * CHUNK;
    CUdeviceptr found = graph->end;
    graph->end += (node->bytes + UNIT - 1) / UNIT * UNIT;
    return found;
}

/* Memory ---------------------------------------------------------------------------------------------------------- */

static int device_of(unsigned gpu)
{
    for (int device = 0; device < driver_devices(); device++)
        if (driver_gpu(device) == gpu)
            return device;
    return 0;
}

void driver_graph_give(unsigned gpu, uint64_t bytes)
{
    memory[device_of(gpu)].left -= bytes;
}

/* What graphs hold of a device that run now, on all streams but one. */
static uint64_t bound(int device, CUstream but)
{
    uint64_t total = 0;
    for (unsigned each = 0; each < RUNS; each++)
        if (runs[each].until != 0 && runs[each].stream != but) {
            if (driver_has_ended(runs[each].gpu, runs[each].until))
                runs[each].until = 0;
            else
                total += runs[each].bytes[device];
        }
    return total;
}

#define NO_STREAM ((CUstream)-1)

static uint64_t whole_chunks(uint64_t bytes)
{
    return (bytes + CHUNK - 1) / CHUNK * CHUNK;
}

/* What cannot be given back now. */
static uint64_t held(int device)
{
    uint64_t total = whole_chunks(memory[device].left) + bound(device, NO_STREAM);
    return total < memory[device].reserved ? total : memory[device].reserved;
}

static unsigned run_of(CUstream stream)
{
    unsigned place = 0;
    for (unsigned each = 0; each < RUNS; each++) {
        if (runs[each].until != 0 && runs[each].stream == stream)
            return each;
        if (runs[each].until == 0)
            place = each;
    }
    return place;
}

static int has_chunk(const struct CUgraph_st *graph, const struct CUgraphNode_st *end, int device, uint64_t chunk)
{
    for (const struct CUgraphNode_st *each = graph->nodes; each != end; each = each->next)
        if (each->kind == NODE_ALLOC && each->device == device && each->address / CHUNK <= chunk &&
            chunk <= (each->address + each->bytes - 1) / CHUNK)
            return 1;
    return 0;
}

/* Adds the chunks of a graph to those of each device. */
static void add_needs(const struct CUgraph_st *graph, uint64_t *needs)
{
    for (const struct CUgraphNode_st *each = graph->nodes; each != NULL; each = each->next) {
        if (each->child != NULL)
            add_needs(each->child, needs);
        if (each->kind != NODE_ALLOC)
            continue;
        uint64_t more = 0;
        for (uint64_t chunk = each->address / CHUNK; chunk <= (each->address + each->bytes - 1) / CHUNK; chunk++)
            more += has_chunk(graph, each, each->device, chunk) ? 0 : CHUNK;
        /* what does not fit into those that are there gets as many as it fills */
        needs[each->device] += more > 0 && more < whole_chunks(each->bytes) ? whole_chunks(each->bytes) : more;
    }
}

static int is_newest_there(const struct CUgraphNode_st *node)
{
    for (const struct CUgraphNode_st *each = node->next; each != NULL; each = each->next)
        if (each->kind == NODE_ALLOC && each->address == node->address)
            return 0;
    return 1;
}

/* What it has left allocated of a device. */
static uint64_t left_by(const struct CUgraph_st *graph, int device)
{
    uint64_t total = 0;
    for (const struct CUgraphNode_st *each = graph->nodes; each != NULL; each = each->next) {
        if (each->child != NULL)
            total += left_by(each->child, device);
        if (each->kind == NODE_ALLOC && each->device == device && is_newest_there(each) && driver_find(each->address) != NULL)
            total += each->bytes;
    }
    return total;
}

static void free_left(const struct CUgraph_st *graph)
{
    for (const struct CUgraphNode_st *each = graph->nodes; each != NULL; each = each->next) {
        block *found = each->kind == NODE_ALLOC ? driver_remove(each->address) : NULL;
        if (each->child != NULL)
            free_left(each->child);
        if (found != NULL)
            driver_graph_give(found->gpu, found->bytes);
        free(found);
    }
}

/* Takes what a graph needs on a stream beside those that run on others; at a failure nothing is taken. */
static CUresult take(const struct CUgraphExec_st *exec, CUstream stream)
{
    uint64_t more[DRIVER_GPUS] = {0};
    for (int device = 0; device < driver_devices(); device++) {
        uint64_t needed = whole_chunks(memory[device].left) + bound(device, stream) + exec->needs[device];
        if (exec->needs[device] > 0 && needed > memory[device].reserved)
            more[device] = needed - memory[device].reserved;
        if (more[device] > 0 && machine_take(driver_gpu(device), more[device]) != 0) {
            while (device-- > 0)
                machine_give(driver_gpu(device), more[device]);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    for (int device = 0; device < driver_devices(); device++) {
        memory[device].reserved += more[device];
        if (memory[device].reserved > memory[device].reserved_high)
            memory[device].reserved_high = memory[device].reserved;
    }
    return CUDA_SUCCESS;
}

/* Allocates and frees as the nodes say; returns how long they run. */
static uint64_t run(const struct CUgraph_st *graph)
{
    uint64_t duration = 0;
    for (const struct CUgraphNode_st *each = graph->nodes; each != NULL; each = each->next) {
        duration += each->duration;
        if (each->child != NULL)
            duration += run(each->child);
        if (each->kind == NODE_ALLOC) {
            driver_add(each->address, each->bytes, BLOCK_GRAPH, driver_gpu(each->device));
            memory[each->device].left += each->bytes;
        }
        if (each->kind == NODE_FREE) {
            block *found = driver_remove(each->address);
            if (found != NULL && found->kind == BLOCK_GRAPH)
                driver_graph_give(found->gpu, found->bytes);
            free(found);
        }
    }
    return duration;
}

/* The memory of a graph is bound to it until its stream gets there. */
static void bind(const struct CUgraphExec_st *exec, CUstream stream, uint64_t until)
{
    unsigned place = run_of(stream);
    int goes_on = runs[place].until != 0 && runs[place].stream == stream;
    for (int device = 0; device < driver_devices(); device++) {
        uint64_t left = whole_chunks(left_by(exec->graph, device));
        uint64_t bytes = exec->needs[device] - (left < exec->needs[device] ? left : exec->needs[device]);
        if (!goes_on || bytes > runs[place].bytes[device])
            runs[place].bytes[device] = bytes;
    }
    runs[place].stream = stream;
    runs[place].gpu = driver_stream_context(stream)->gpu;
    runs[place].until = until;
}

/* Functions of the driver ----------------------------------------------------------------------------------------- */

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
    if (hGraph->owned)
        return CUDA_ERROR_INVALID_VALUE;
    if (hGraph->object != NULL)
        hGraph->object->destroy(hGraph->object->data);
    free(hGraph->object);
    destroy(hGraph);
    return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
    FAULT();
    if (has_memory(originalGraph))
        return CUDA_ERROR_NOT_SUPPORTED; /* a graph with memory nodes cannot be cloned */
    *phGraphClone = copy(originalGraph);
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
    if (has_memory(child) && !moved)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (child->owned)
        return CUDA_ERROR_INVALID_VALUE;
    made = add(graph, NODE_CHILD, CU_GRAPH_NODE_TYPE_GRAPH, after, count);
    made->child = moved ? child : copy(child);
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

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    if (exec == NULL || graph == NULL || graph->owned)
        return CUDA_ERROR_INVALID_VALUE;
    if (graph->executables == NULL)
        graph->executables = calloc(1, sizeof *graph->executables);
    if (*graph->executables > 0 && has_memory(graph))
        return CUDA_ERROR_NOT_SUPPORTED; /* its memory has one address */
    ++*graph->executables;
    *exec = calloc(1, sizeof **exec);
    (*exec)->graph = copy(graph);
    (*exec)->all = graph->executables;
    (*exec)->frees_on_launch = (flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
    add_needs(graph, (*exec)->needs);
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
{
    FAULT();
    return instantiate(phGraphExec, hGraph, flags);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    CUresult code;
    FAULT();
    code = instantiate(phGraphExec, hGraph, params->flags);
    params->result_out = code == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    if (code == CUDA_SUCCESS && (params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD))
        return cuGraphUpload(*phGraphExec, params->hUploadStream);
    return code;
}

CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize)
{
    FAULT();
    (void)phErrorNode, (void)logBuffer, (void)bufferSize;
    return instantiate(phGraphExec, hGraph, 0);
}

CUresult cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize)
{
    FAULT();
    (void)phErrorNode, (void)logBuffer, (void)bufferSize;
    return instantiate(phGraphExec, hGraph, 0);
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    FAULT();
    --*hGraphExec->all;
    destroy(hGraphExec->graph);
    free(hGraphExec);
    return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream)
{
    CUresult code;
    FAULT();
    if (driver_stream_context(hStream) == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&driver_lock);
    code = take(hGraphExec, hStream);
    pthread_mutex_unlock(&driver_lock);
    return code;
}

/* Takes the memory of a graph and allocates as it says; tells how long it runs. */
static CUresult begin(CUgraphExec exec, CUstream stream, uint64_t *duration)
{
    CUresult code;
    if (exec->frees_on_launch)
        free_left(exec->graph);
    for (int device = 0; device < driver_devices(); device++)
        if (left_by(exec->graph, device) > 0)
            return CUDA_ERROR_INVALID_VALUE; /* what it has allocated must be freed before it runs again */
    code = take(exec, stream);
    if (code == CUDA_SUCCESS)
        *duration = run(exec->graph);
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
    code = begin(hGraphExec, hStream, &duration);
    pthread_mutex_unlock(&driver_lock);
    if (code == CUDA_SUCCESS)
        code = driver_queue(hStream, duration);
    if (code != CUDA_SUCCESS)
        return code;
    pthread_mutex_lock(&driver_lock);
    bind(hGraphExec, hStream, driver_tail(hStream));
    pthread_mutex_unlock(&driver_lock);
    return code;
}

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    FAULT();
    if (device < 0 || device >= driver_devices())
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&driver_lock);
    machine_give(driver_gpu(device), memory[device].reserved - held(device));
    memory[device].reserved = held(device);
    pthread_mutex_unlock(&driver_lock);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
    CUresult code = CUDA_SUCCESS;
    FAULT();
    if (device < 0 || device >= driver_devices())
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&driver_lock);
    switch (attr) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT: *(cuuint64_t *)value = memory[device].reserved; break;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH: *(cuuint64_t *)value = memory[device].reserved_high; break;
    default: code = CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_unlock(&driver_lock);
    return code;
}

struct CUgraph_st *driver_new_graph(void)
{
    return new_graph();
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
