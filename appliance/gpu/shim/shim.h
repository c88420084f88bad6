/* What all modules of this library share: the two files, and a word or two.
 *
 * What a module offers stands in the header of its name, and a module reads the headers of those below it only:
 *
 *   resolve                           dlsym and cuGetProcAddress: which pointer is exchanged for which of ours
 *   launches waits context primary callbacks nvml_view  what programs call
 *   context_memory                    what a context takes, and what goes with it
 *   memory async arrays areas graph view
 *   handles
 *   compute                           when launches may go
 *   gate                              what is in flight
 *   lengths                           how long launches take
 *   packed                            arrays, which have no addresses
 *   pools                             what the GPU holds in stock
 *   frees                             what streams free when they get there
 *   watched                           streams on which something is pending
 *   orders                            what graphs can have come to
 *   record                            what is recorded
 *   list exports stream window
 *   intervals                         when there was work, for the agent
 *   pages                             what blocks take of the GPU
 *   device nvml_usage                 which GPU it is
 *   account table                     what this process holds, and the container
 *   driver nvml_real                  the real functions
 *   limits process
 *   fork library lock
 *
 * Only hooks.def and setters.def name functions of modules above: as places in a table of pointers, by which nothing is
 * called. */
#ifndef PSG_SHIM_H
#define PSG_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "layout.h"

#define EXPORT __attribute__((visibility("default")))

static inline uint64_t smaller(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

static inline uint64_t larger(uint64_t one, uint64_t other)
{
    return one > other ? one : other;
}

#endif
