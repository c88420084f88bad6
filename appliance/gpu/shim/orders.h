/* What the memory of graphs can have come to, by the orders in which they run. */
#ifndef PSG_ORDERS_H
#define PSG_ORDERS_H

#include "shim.h"

/* Streams on which graphs with memory run; on more of them no two are known to share any. */
enum { PSG_ORDERS = 16 };

/* What graphs can have come to since they were last trimmed: what they had then, and on each stream the largest. */
struct psg_orders {
    uint64_t before;
    struct {
        uint64_t order, most;
    } each[PSG_ORDERS];
    unsigned count;
};

/* Graphs have been trimmed to so many bytes. */
void psg_orders_forget(struct psg_orders *orders, uint64_t before);

/* Adds a graph to what graphs can have come to; returns that. */
uint64_t psg_orders_add(struct psg_orders *orders, uint64_t order, uint64_t bytes);

#endif
