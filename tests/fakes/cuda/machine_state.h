/* What lies in the file that the processes of one machine share. */
#ifndef MACHINE_STATE_H
#define MACHINE_STATE_H

#include "machine.h"

#include <pthread.h>

#define PROCESSES 2048
#define LIMITS 64

#define MACHINE_MARKS 512

/* Up to where a process had been served at a time, while so many shared the GPU. */
typedef struct {
    uint64_t at, served;
    unsigned sharing;
} machine_mark;

typedef struct {
    uint64_t bytes, busy_ns;
    uint64_t second, busy_then, busy_before; /* work of this second and of the one before it */
    uint64_t last_from, last_until;          /* when the last kernel runs */
    uint64_t queued, served;                 /* ns of work */
    unsigned marks;
    machine_mark mark[MACHINE_MARKS];
} machine_share;

typedef struct {
    int pid; /* 0: free */
    int planted;
    unsigned percent;
    uint64_t start, image; /* of the program: another one after exec */
    machine_share on[MACHINE_GPUS];
} machine_process;

typedef struct {
    char group[MACHINE_PATH];
    unsigned gpu;
    uint64_t soft, hard;
} machine_group;

typedef struct {
    uint64_t magic;
    pthread_mutex_t mutex;
    struct {
        uint64_t used, peak;
        uint64_t passed, reaped; /* up to when time slices were given, and when the dead were looked for */
    } gpus[MACHINE_GPUS];
    unsigned slots; /* those ever used */
    machine_process processes[PROCESSES];
    machine_group limits[LIMITS];
} machine_state;

extern machine_state *machine_shared;

/* Opens the state at the first call and locks it; where a process was killed in between, sums up anew. */
machine_state *machine_lock(void);
void machine_unlock(void);
/* Returns a process's number as the caller knows it, 0 where it is dead. */
int machine_living(const machine_process *slot);
/* Frees what the dead have left. */
void machine_reap(void);

/* The caller's share of a GPU, with the lock held. */
machine_share *machine_own(unsigned gpu);
/* Queues work of the caller, with the lock held; returns what `machine_ends` takes. */
uint64_t machine_queue(unsigned gpu, uint64_t now, machine_share *mine, uint64_t duration);

#endif
