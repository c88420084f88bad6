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
    struct CUgraphNode_st **after; /* the nodes that it depends on; not known of executable graphs */
    size_t after_count;
    struct CUgraphNode_st *next;
};

struct CUgraph_st {
    struct CUgraphNode_st *nodes, *newest, **last;
    struct CUuserObject_st *object;
    int owned;    /* by the graph into which it was moved */
    unsigned *executables; /* how many there are; outlives the graph */
    CUdeviceptr addresses, end; /* of its memory: where they begin, and where those in use end */
};

#define GRAPH_CHUNK (32ULL << 20) /* of memory, for so many addresses */

struct CUgraph_st *driver_copy_graph(const struct CUgraph_st *graph);
void driver_free_graph(struct CUgraph_st *graph);
int driver_has_memory(const struct CUgraph_st *graph);

#endif
