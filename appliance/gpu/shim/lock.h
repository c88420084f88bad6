/* Locks of this library, and of nobody else.
 *
 * They have an order: who holds one takes only such as stand further down here. `creating` (context_memory.c); the locks of
 * gates, of which a thread holds one at a time; `measuring` (lengths.c); `counting` (handles.c) and `packing` (packed.c), none
 * with the other; `asking` (record.c); `freeing` (frees.c); `sharing` (exports.c); those of stocks, one at a time (pools.c);
 * `listing` (list.c); `placing` (pages.c); those of the table's parts, one at a time (table.c); `registering` and then `balancing`,
 * one at a time (account.c). `attaching` (limits.c), `publishing` (driver.c), `building` (resolve.c) and `looking` (nvml_view.c)
 * are held with no other. With the lock of a gate the driver is asked only what it answers at once; the others may be held
 * over any call of it. Nobody sleeps with one but `creating`. The sanitizer for threads looks for two that were taken in both
 * orders (tests/integration/gpu/test_crowds.py). */
#ifndef PSG_LOCK_H
#define PSG_LOCK_H

#include <pthread.h>

#include "shim.h"

/* A thread that holds one cannot be cancelled until it has given back the last: for the driver, and files, may be where a
 * thread ends that was cancelled before, and nobody would ever unlock what it held. */
void psg_lock(pthread_mutex_t *lock);
void psg_unlock(pthread_mutex_t *lock);

#endif
