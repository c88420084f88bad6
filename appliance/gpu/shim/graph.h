/* What launches need to know of the memory of graphs. */
#ifndef PSG_GRAPH_H
#define PSG_GRAPH_H

#include "driver.h"

/* Charges what a graph is about to take; false: the limit forbids it. Else psg_graph_end follows the driver's answer. */
bool psg_graph_begin(CUgraphExec executable, CUstream stream, bool *charged);
void psg_graph_end(CUgraphExec executable, bool charged);

/* Runs an executable graph on a stream by `call`. */
#define PSG_RUN(executable, stream, call) ({                         \
        bool charged;                                                \
        CUresult ran = CUDA_ERROR_OUT_OF_MEMORY;                     \
        if (psg_graph_begin(executable, stream, &charged)) {         \
            ran = call;                                              \
            psg_graph_end(executable, charged);                      \
        }                                                            \
        ran;                                                         \
    })

#endif
