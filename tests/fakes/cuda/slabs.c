/* Where a card puts what a program allocates: large blocks take whole pages of 2 MiB, small ones lie together on pages of
 * their context, each in the first gap that is wide enough. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

#define UNIT 512ULL
#define UNITS (GRANULARITY / UNIT)

struct slab {
    CUdeviceptr address;
    unsigned gpu, used;
    const struct CUctx_st *context;
    unsigned char taken[UNITS];
    struct slab *next;
};

static struct slab *slabs;

uint64_t driver_pages(uint64_t bytes)
{
    return (bytes + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
}

/* The first of so many free units in a row, or UNITS. */
static unsigned gap(const struct slab *slab, unsigned wanted)
{
    unsigned found = 0;
    for (unsigned unit = 0; unit < UNITS; unit++) {
        found = slab->taken[unit] ? 0 : found + 1;
        if (found == wanted)
            return unit + 1 - wanted;
    }
    return UNITS;
}

static struct slab *new_slab(const struct CUctx_st *context)
{
    struct slab *made;
    if (machine_take(context->gpu, GRANULARITY) != 0)
        return NULL;
    made = calloc(1, sizeof *made);
    made->address = driver_address(GRANULARITY);
    made->gpu = context->gpu;
    made->context = context;
    made->next = slabs;
    return slabs = made;
}

static CUdeviceptr take_small(const struct CUctx_st *context, uint64_t bytes)
{
    unsigned wanted = (unsigned)((bytes + UNIT - 1) / UNIT), first = UNITS;
    struct slab *slab = slabs;
    for (; slab != NULL; slab = slab->next)
        if (slab->context == context && (first = gap(slab, wanted)) < UNITS)
            break;
    if (slab == NULL) {
        if ((slab = new_slab(context)) == NULL)
            return 0;
        first = 0;
    }
    memset(&slab->taken[first], 1, wanted);
    slab->used += wanted;
    return slab->address + first * UNIT;
}

CUdeviceptr driver_place(const struct CUctx_st *context, uint64_t bytes)
{
    if (bytes < GRANULARITY)
        return take_small(context, bytes);
    return machine_take(context->gpu, driver_pages(bytes)) != 0 ? 0 : driver_address(bytes);
}

void driver_unplace(CUdeviceptr address, unsigned gpu, uint64_t bytes)
{
    unsigned wanted = (unsigned)((bytes + UNIT - 1) / UNIT);
    if (bytes >= GRANULARITY) {
        machine_give(gpu, driver_pages(bytes));
        return;
    }
    for (struct slab **each = &slabs; *each != NULL; each = &(*each)->next) {
        struct slab *found = *each;
        if (address < found->address || address >= found->address + GRANULARITY)
            continue;
        memset(&found->taken[(address - found->address) / UNIT], 0, wanted);
        if ((found->used -= wanted) == 0) {
            *each = found->next;
            machine_give(gpu, GRANULARITY);
            free(found);
        }
        return;
    }
}
