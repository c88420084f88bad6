/* What launches need to know of the memory of graphs. */
#ifndef PSG_GRAPH_H
#define PSG_GRAPH_H

#include "driver.h"

/* Charges what a graph is about to take; false: the limit forbids it. Call psg_pools_settle(*gpu) after the launch. */
_Bool psg_graph_begin(CUgraphExec executable, int *gpu);

#endif
