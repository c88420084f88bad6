/* What the client does with graphs. */
#include "client.h"

#include <string.h>

static CUgraph graphs[OBJECTS];
CUgraphExec execs[OBJECTS];

/* The node that was added to a graph last: the next one comes behind it. */
static CUgraphNode newest[OBJECTS];

static const CUgraphNode *behind(number graph, size_t *count)
{
    *count = newest[graph] != NULL;
    return &newest[graph];
}

static CUresult make_graph(number graph)
{
    newest[graph] = NULL;
    return p_cuGraphCreate(&graphs[graph], 0);
}

static CUresult add_alloc_node(number graph, number name, number bytes, int device, int any, int beside)
{
    CUgraphNode node;
    CUresult code;
    size_t count;
    const CUgraphNode *after = behind(graph, &count);
    CUmemPoolProps from = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}}};
    count = beside ? 0 : count;
    if (any) {
        CUgraphNodeParams as = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
        as.alloc = (CUDA_MEM_ALLOC_NODE_PARAMS_v2){.poolProps = from, .bytesize = bytes};
        code = p_cuGraphAddNode(&node, graphs[graph], after, NULL, count, &as);
        memory[name] = as.alloc.dptr;
    } else {
        CUDA_MEM_ALLOC_NODE_PARAMS as = {.poolProps = from, .bytesize = bytes};
        code = p_cuGraphAddMemAllocNode(&node, graphs[graph], after, count, &as);
        memory[name] = as.dptr;
    }
    newest[graph] = code == CUDA_SUCCESS ? node : newest[graph];
    return code;
}

static CUresult add_free_node(number graph, number name)
{
    CUgraphNode node;
    size_t count;
    const CUgraphNode *after = behind(graph, &count);
    CUresult code = p_cuGraphAddMemFreeNode(&node, graphs[graph], after, count, memory[name]);
    newest[graph] = code == CUDA_SUCCESS ? node : newest[graph];
    return code;
}

static CUresult add_kernel_node(number graph)
{
    CUDA_KERNEL_NODE_PARAMS as = {.func = functions[0], .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
        .blockDimY = 1, .blockDimZ = 1};
    CUgraphNode node;
    size_t count;
    const CUgraphNode *after = behind(graph, &count);
    CUresult code = p_cuGraphAddKernelNode(&node, graphs[graph], after, count, &as);
    newest[graph] = code == CUDA_SUCCESS ? node : newest[graph];
    return code;
}

/* Adds a graph to another one that owns it from then on. */
static CUresult move_child(number graph, number child)
{
    CUgraphNodeParams as = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    CUgraphNode node;
    size_t count;
    const CUgraphNode *after = behind(graph, &count);
    as.graph = (CUDA_CHILD_GRAPH_NODE_PARAMS){graphs[child], CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE};
    CUresult code = p_cuGraphAddNode(&node, graphs[graph], after, NULL, count, &as);
    newest[graph] = code == CUDA_SUCCESS ? node : newest[graph];
    return code;
}

static number wanted;

static void allocate_at_the_end(void *place)
{
    tell((number)p_cuMemAlloc(place, wanted));
}

/* Destroys a graph with an object whose end allocates memory; tells the code of that. */
static CUresult end_object(number name, number bytes)
{
    CUuserObject object;
    CUgraph graph;
    wanted = bytes;
    CUresult code = p_cuGraphCreate(&graph, 0);
    if (code == CUDA_SUCCESS)
        code = p_cuUserObjectCreate(&object, &memory[name], allocate_at_the_end, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    if (code == CUDA_SUCCESS)
        code = p_cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
    return code == CUDA_SUCCESS ? p_cuGraphDestroy(graph) : code;
}

/* A graph that allocates and frees on one GPU or two: made, run once, and all of it given back. The first failure counts. */
static CUresult run_graph(number bytes, int devices)
{
    CUgraphExec exec = NULL;
    CUresult code = make_graph(0), ended;
    for (int device = 0; device < devices && code == CUDA_SUCCESS; device++)
        if ((code = add_alloc_node(0, OBJECTS - 1, bytes, device, device, 0)) == CUDA_SUCCESS)
            code = add_free_node(0, OBJECTS - 1);
    if (code == CUDA_SUCCESS)
        code = p_cuGraphInstantiateWithFlags(&exec, graphs[0], 0);
    ended = p_cuGraphDestroy(graphs[0]);
    code = code == CUDA_SUCCESS ? ended : code;
    if (code == CUDA_SUCCESS)
        code = p_cuGraphLaunch(exec, NULL);
    ended = exec ? p_cuGraphExecDestroy(exec) : CUDA_SUCCESS;
    for (int device = 0; device < devices; device++)
        ended = ended == CUDA_SUCCESS ? p_cuDeviceGraphMemTrim(device) : ended;
    return code == CUDA_SUCCESS ? ended : code;
}

/* Makes a graph executable and uploads it. */
static CUresult instantiate_and_upload(number exec, number graph)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS as = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD};
    CUresult code = cuGraphInstantiateWithParams(&execs[exec], graphs[graph], &as);
    return tell((number)as.result_out), code;
}

CUresult graph_command(const char *word, const unsigned long long *n)
{
    if (same(word, "graph"))
        return make_graph(n[0]);
    if (same(word, "endobject"))
        return end_object(n[0], n[1]);
    if (same(word, "graphfree"))
        return p_cuGraphDestroy(graphs[n[0]]);
    if (same(word, "allocnode"))
        return add_alloc_node(n[0], n[1], n[2], (int)n[3], 0, 0);
    if (same(word, "allocbeside"))
        return add_alloc_node(n[0], n[1], n[2], (int)n[3], 0, 1);
    if (same(word, "anynode"))
        return add_alloc_node(n[0], n[1], n[2], (int)n[3], 1, 0);
    if (same(word, "freenode"))
        return add_free_node(n[0], n[1]);
    if (same(word, "kernelnode"))
        return add_kernel_node(n[0]);
    if (same(word, "movechild"))
        return move_child(n[0], n[1]);
    if (same(word, "instantiate"))
        return p_cuGraphInstantiateWithFlags(&execs[n[0]], graphs[n[1]], n[2]);
    if (same(word, "instantiateup"))
        return instantiate_and_upload(n[0], n[1]);
    if (same(word, "graphlaunchon"))
        return p_cuGraphLaunch(execs[n[0]], stream_named(n[1]));
    if (same(word, "execfree"))
        return p_cuGraphExecDestroy(execs[n[0]]);
    if (same(word, "upload"))
        return p_cuGraphUpload(execs[n[0]], NULL);
    if (same(word, "graphlaunch"))
        return p_cuGraphLaunch(execs[n[0]], NULL);
    if (same(word, "rungraph"))
        return run_graph(n[0], (int)n[1]);
    if (same(word, "graphtrim"))
        return p_cuDeviceGraphMemTrim((int)n[0]);
    if (same(word, "endcapture"))
        return p_cuStreamEndCapture(stream_named(n[0]), &graphs[n[1]]);
    if (same(word, "freeasyncon"))
        return p_cuMemFreeAsync(memory[n[0]], stream_named(n[1]));
    if (same(word, "asyncon"))
        return p_cuMemAllocAsync(&memory[n[0]], n[1], stream_named(n[2]));
    return CUDA_ERROR_UNKNOWN;
}
