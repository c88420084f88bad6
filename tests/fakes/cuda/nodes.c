/* What the fake driver tells of the nodes of a graph. */
#include "graphs.h"

#include <string.h>

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
