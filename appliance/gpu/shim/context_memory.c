/* What a context takes of its GPU. It is hundreds of MiB on a real one; how much is only seen by NVML, before and after one is
 * made. Neighbours may take memory at that moment, too, so the least of the first few differences counts; it is kept in the
 * account for all others. */
#include <pthread.h>

#include "account.h"
#include "context_memory.h"
#include "driver.h"
#include "fork.h"
#include "handles.h"
#include "lock.h"
#include "nvml_usage.h"
#include "packed.h"
#include "pages.h"
#include "pools.h"
#include "record.h"
#include "table.h"

#define LEAST_CONTEXT (UINT64_C(1) << 20)
#define MOST_CONTEXT (UINT64_C(1) << 30)

/* So many creations are measured, and what only one of them has shown refuses nobody. */
enum { MEASURED = 4, SURE = 2 };

static pthread_mutex_t creating = PTHREAD_MUTEX_INITIALIZER;

static void after_fork_in_child(void)
{
    creating = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

AT_FORK(.in_child = after_fork_in_child);

void psg_contexts_lock(void)
{
    psg_lock(&creating);
}

void psg_contexts_unlock(void)
{
    psg_unlock(&creating);
}

bool psg_context_begin(struct psg_context_measure *measure, int gpu)
{
    struct psg_total *total = psg_total(gpu);
    uint64_t times = __atomic_load_n(&total->measured, __ATOMIC_ACQUIRE);
    *measure = (struct psg_context_measure){.gpu = gpu, .charged = __atomic_load_n(&total->context, __ATOMIC_ACQUIRE)};
    if (measure->charged && !psg_take_or_trim(gpu, measure->charged)) {
        if (times >= SURE)
            return false;
        measure->charged = 0;
    }
    measure->word = psg_used(gpu);
    measure->measured = times < MEASURED && psg_nvml_used(gpu, &measure->before);
    return true;
}

uint64_t psg_context_end(const struct psg_context_measure *measure)
{
    uint64_t after, charged = measure->charged;
    struct psg_total *total = psg_total(measure->gpu);
    if (!measure->measured || !psg_nvml_used(measure->gpu, &after) || after <= measure->before)
        return charged;
    uint64_t grown = after - measure->before;
    /* Where others of the container took memory at the same time, the difference says nothing. */
    if (grown < LEAST_CONTEXT || grown > MOST_CONTEXT || psg_used(measure->gpu) != measure->word)
        return charged;
    if (!charged && !psg_take(measure->gpu, grown))
        grown = 0;
    __atomic_fetch_add(&total->measured, 1, __ATOMIC_ACQ_REL);
    uint64_t known = __atomic_load_n(&total->context, __ATOMIC_ACQUIRE);
    while (grown && (!known || grown < known) &&
           !__atomic_compare_exchange_n(&total->context, &known, grown, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        ;
    if (!charged || grown >= charged)
        return charged ? charged : grown;
    psg_give(measure->gpu, charged - grown);
    return grown;
}

/* Entries that stand aside have their kind as their count. */
static void give_entry(const struct psg_entry *entry)
{
    switch (entry->count) {
    case PSG_POINTER: psg_block_give(entry); break;
    case PSG_AREA: psg_give(entry->gpu, entry->bytes); break;
    default:
        psg_parts_gone(entry->key);
        psg_packed_give(entry->gpu, entry->bytes);
    }
}

void psg_context_set_apart(uint64_t context)
{
    psg_table_leave(PSG_POINTER, context);
    psg_table_leave(PSG_ARRAY, context);
    psg_table_leave(PSG_MIPMAP, context);
    psg_table_leave(PSG_AREA, context);
}

void psg_context_lost(uint64_t context)
{
    psg_table_sweep(PSG_LEAVING, context, give_entry);
    psg_recordings_gone(context);
}
