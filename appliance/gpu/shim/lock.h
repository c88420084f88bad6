/* Locks of this library, and of nobody else. */
#ifndef PSG_LOCK_H
#define PSG_LOCK_H

#include <pthread.h>

#include "shim.h"

/* A thread that holds one cannot be cancelled until it has given back the last: for the driver, and files, may be where a
 * thread ends that was cancelled before, and nobody would ever unlock what it held. */
void psg_lock(pthread_mutex_t *lock);
void psg_unlock(pthread_mutex_t *lock);

#endif
