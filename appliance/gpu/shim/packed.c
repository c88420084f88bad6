/* Arrays have no addresses, so nobody sees on which pages they lie: what is larger than half a page is charged whole pages, and
 * small ones of a GPU as if they lay close together. Where the driver leaves gaps between them, NVML shows more than the
 * account. */
#include <pthread.h>

#include "account.h"
#include "fork.h"
#include "lock.h"
#include "packed.h"
#include "pages.h"
#include "pools.h"

static pthread_mutex_t packing = PTHREAD_MUTEX_INITIALIZER;
static uint64_t together[PSG_GPUS]; /* bytes of small arrays */

static void after_fork_in_child(void)
{
    packing = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    for (int gpu = 0; gpu < PSG_GPUS; gpu++)
        together[gpu] = 0;
}

AT_FORK(.in_child = after_fork_in_child);

static bool is_large(int gpu, uint64_t bytes)
{
    return bytes > psg_page(gpu) / 2;
}

bool psg_packed_take(int gpu, uint64_t bytes)
{
    if (is_large(gpu, bytes))
        return psg_take_or_trim(gpu, psg_whole_pages(gpu, bytes));
    psg_lock(&packing);
    uint64_t more = psg_whole_pages(gpu, together[gpu] + bytes) - psg_whole_pages(gpu, together[gpu]);
    bool fits = psg_take_or_trim(gpu, more);
    together[gpu] += fits ? bytes : 0;
    psg_unlock(&packing);
    return fits;
}

void psg_packed_give(int gpu, uint64_t bytes)
{
    if (is_large(gpu, bytes)) {
        psg_give(gpu, psg_whole_pages(gpu, bytes));
        return;
    }
    psg_lock(&packing);
    uint64_t before = together[gpu];
    together[gpu] -= smaller(bytes, before);
    psg_give(gpu, psg_whole_pages(gpu, before) - psg_whole_pages(gpu, together[gpu]));
    psg_unlock(&packing);
}
