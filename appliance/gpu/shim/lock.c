/* Locks that no thread ends with. */
#include "lock.h"

static __thread unsigned held;
static __thread int before;

void psg_lock(pthread_mutex_t *lock)
{
    if (held++ == 0)
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    pthread_mutex_lock(lock);
}

void psg_unlock(pthread_mutex_t *lock)
{
    pthread_mutex_unlock(lock);
    if (--held == 0)
        pthread_setcancelstate(before, NULL);
}
