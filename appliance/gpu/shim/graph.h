/* What launches need to know of the memory of graphs. */
#ifndef PSG_GRAPH_H
#define PSG_GRAPH_H

#include "driver.h"

/* One launch or upload of a graph. */
struct psg_graph_run {
    CUgraphExec executable;
    uint32_t trims;
    int gpu; /* -1: it has no memory that is charged */
};

/* Charges what a graph is about to take; false: the limit forbids it. Else psg_graph_end follows the driver's answer. */
bool psg_graph_begin(CUgraphExec executable, struct psg_graph_run *run);
void psg_graph_end(const struct psg_graph_run *run, CUresult result);

#endif
