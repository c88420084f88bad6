/* What launches need to know of the memory of graphs. */
#ifndef PSG_GRAPH_H
#define PSG_GRAPH_H

#include "driver.h"

/* One launch or upload of a graph. */
struct psg_graph_run {
    CUgraphExec executable;
    uint32_t trims;
    bool charged; /* it has memory that is */
};

/* Charges what a graph is about to take; false: the limit forbids it. Else psg_graph_end follows the driver's answer. */
bool psg_graph_begin(CUgraphExec executable, struct psg_graph_run *run);
void psg_graph_end(const struct psg_graph_run *run, CUresult result);

/* Runs an executable graph by `call`. */
#define PSG_RUN(executable, call) ({                                 \
        struct psg_graph_run run;                                    \
        CUresult ran = CUDA_ERROR_OUT_OF_MEMORY;                     \
        if (psg_graph_begin(executable, &run)) {                     \
            ran = call;                                              \
            psg_graph_end(&run, ran);                                \
        }                                                            \
        ran;                                                         \
    })

#endif
