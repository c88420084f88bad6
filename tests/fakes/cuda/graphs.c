/* Executable graphs of the fake driver, and memory that is taken when one is uploaded or launched.
 *
 * Memory comes in chunks, each for so many addresses of a graph. Graphs that do not run at the same time share it, and it
 * stays reserved on its device until it is trimmed. All of this is as an H200 does it, and as it tells of it: what is
 * reserved counts as in use.
 */
#include "graphs.h"

#include <stdlib.h>

#define RUNS 256

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
    return (bytes + GRAPH_CHUNK - 1) / GRAPH_CHUNK * GRAPH_CHUNK;
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
        if (each->kind == NODE_ALLOC && each->device == device && each->address / GRAPH_CHUNK <= chunk &&
            chunk <= (each->address + each->bytes - 1) / GRAPH_CHUNK)
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
        for (uint64_t chunk = each->address / GRAPH_CHUNK; chunk <= (each->address + each->bytes - 1) / GRAPH_CHUNK; chunk++)
            more += has_chunk(graph, each, each->device, chunk) ? 0 : GRAPH_CHUNK;
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

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    if (exec == NULL || graph == NULL || graph->owned)
        return CUDA_ERROR_INVALID_VALUE;
    if (graph->executables == NULL)
        graph->executables = calloc(1, sizeof *graph->executables);
    if (*graph->executables > 0 && driver_has_memory(graph))
        return CUDA_ERROR_NOT_SUPPORTED; /* its memory has one address */
    ++*graph->executables;
    *exec = calloc(1, sizeof **exec);
    (*exec)->graph = driver_copy_graph(graph);
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
    driver_free_graph(hGraphExec->graph);
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
