/* Graphs of the fake driver: nodes in the order in which they were added. */
#ifndef GRAPHS_H
#define GRAPHS_H

#include "driver.h"

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
    struct CUuserObject_st *object;
};

#endif
