/* What the memory of graphs can have come to, by the orders in which they run. */
#include "orders.h"

void psg_orders_forget(struct psg_orders *orders, uint64_t before)
{
    orders->before = before;
    orders->count = 0;
}

uint64_t psg_orders_add(struct psg_orders *orders, uint64_t order, uint64_t bytes)
{
    unsigned place = 0;
    while (place < orders->count && orders->each[place].order != order)
        place++;
    if (place == PSG_ORDERS) {
        orders->before += bytes;
    } else {
        uint64_t most = place < orders->count ? orders->each[place].most : 0;
        orders->each[place].order = order;
        orders->each[place].most = larger(most, bytes);
        orders->count += place == orders->count;
    }
    uint64_t total = orders->before;
    for (unsigned i = 0; i < orders->count; i++)
        total += orders->each[i].most;
    return total;
}
