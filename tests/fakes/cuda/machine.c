/* The state that the processes of one machine share.
 *
 * A process holds a lock on one byte of the file for as long as it lives. So the kernel tells who is alive and, to
 * those in another namespace, by which number they know it; a killed process leaves its memory to the next that looks.
 */
#define _GNU_SOURCE
#include "machine_state.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FIRST_LOCK (1LL << 40)
#define SECOND 1000000000ULL
#define PF_EXITING 4U
#define MAGIC 0x46414b4547505531ULL

machine_state *machine_shared;
static machine_process *own;
static int descriptor = -1;
static int owner_pid;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

/* Start of a process in clock ticks after boot, 0 where it is dead or on its way to it. */
static uint64_t start_time(int pid)
{
    char path[64], text[1024], *field;
    FILE *file;
    unsigned long long value = 0;
    unsigned flags = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if ((file = fopen(path, "re")) == NULL)
        return 0;
    if (fgets(text, sizeof text, file) && (field = strrchr(text, ')')) != NULL)
        sscanf(field + 2, "%*c %*d %*d %*d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &flags, &value);
    fclose(file);
    return flags & PF_EXITING ? 0 : value;
}

static uint64_t own_image(void)
{
    uint64_t image;
    memcpy(&image, (const void *)getauxval(AT_RANDOM), sizeof image);
    return image;
}

static struct flock byte(const machine_process *slot, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_len = 1};
    lock.l_start = FIRST_LOCK + (slot - machine_shared->processes);
    return lock;
}

/* Returns the process's number as the caller knows it, 0 where it is dead. */
int machine_living(const machine_process *slot)
{
    struct flock lock = byte(slot, F_WRLCK);
    if (slot->pid == 0)
        return 0;
    if (slot->pid == getpid() && slot->image == own_image())
        return slot->pid;
    if (slot->planted || descriptor < 0)
        return start_time(slot->pid) == slot->start ? slot->pid : 0;
    if (fcntl(descriptor, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK)
        return 0;
    if (lock.l_pid == slot->pid && start_time(slot->pid) != slot->start)
        return 0;
    return lock.l_pid > 0 ? lock.l_pid : slot->pid;
}

void machine_reap(void)
{
    for (unsigned index = 0; index < machine_shared->slots; index++)
        if (machine_shared->processes[index].pid != 0 && machine_living(&machine_shared->processes[index]) == 0)
            memset(&machine_shared->processes[index], 0, sizeof(machine_process));
    for (unsigned gpu = 0; gpu < MACHINE_GPUS; gpu++) {
        uint64_t sum = 0;
        for (unsigned index = 0; index < machine_shared->slots; index++)
            sum += machine_shared->processes[index].on[gpu].bytes;
        machine_shared->gpus[gpu].used = sum;
        if (sum > machine_shared->gpus[gpu].peak)
            machine_shared->gpus[gpu].peak = sum;
    }
}

static void prepare(machine_state *made)
{
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&made->mutex, &kind);
    pthread_mutexattr_destroy(&kind);
    made->magic = MAGIC;
}

static void fail(const char *what)
{
    perror(what);
    abort();
}

static void open_shared(const char *path)
{
    int flags = MAP_SHARED | (path ? 0 : MAP_ANONYMOUS);
    if (path != NULL) {
        if ((descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666)) < 0)
            fail(path);
        flock(descriptor, LOCK_EX);
        fchmod(descriptor, 0666); /* fails for another user than the first, who has done it */
        if (ftruncate(descriptor, sizeof(machine_state)) != 0)
            fail(path);
    }
    machine_shared = mmap(NULL, sizeof(machine_state), PROT_READ | PROT_WRITE, flags, descriptor, 0);
    if (machine_shared == MAP_FAILED)
        fail("the fake machine");
    if (machine_shared->magic != MAGIC)
        prepare(machine_shared);
    if (descriptor >= 0)
        flock(descriptor, LOCK_UN);
}

void machine_open(const char *path)
{
    static char opened[MACHINE_PATH];
    if (strcmp(opened, path) == 0)
        return;
    if (machine_shared != NULL)
        munmap(machine_shared, sizeof *machine_shared);
    if (descriptor >= 0)
        close(descriptor);
    own = NULL;
    open_shared(path);
    snprintf(opened, sizeof opened, "%s", path);
}

machine_state *machine_lock(void)
{
    if (__atomic_load_n(&machine_shared, __ATOMIC_ACQUIRE) == NULL) {
        pthread_mutex_lock(&opening);
        if (machine_shared == NULL)
            open_shared(getenv("FAKE_GPU_STATE"));
        pthread_mutex_unlock(&opening);
    }
    if (pthread_mutex_lock(&machine_shared->mutex) == EOWNERDEAD) {
        pthread_mutex_consistent(&machine_shared->mutex);
        machine_reap();
    }
    return machine_shared;
}

void machine_unlock(void)
{
    pthread_mutex_unlock(&machine_shared->mutex);
}

static machine_process *find_free(void)
{
    for (int again = 0; again < 2; again++) {
        for (unsigned index = 0; index < PROCESSES; index++)
            if (machine_shared->processes[index].pid == 0) {
                if (index >= machine_shared->slots)
                    machine_shared->slots = index + 1;
                return &machine_shared->processes[index];
            }
        machine_reap();
    }
    fail("the fake machine has no room for another process");
    return NULL;
}

/* The caller's slot, with the lock held. A child of fork gets one of its own, for its parent's memory stays there. */
static machine_process *self(void)
{
    int pid = getpid();
    if (own == NULL || owner_pid != pid) {
        struct flock lock;
        own = find_free();
        memset(own, 0, sizeof *own);
        own->start = start_time(pid);
        own->image = own_image();
        own->pid = owner_pid = pid;
        lock = byte(own, F_WRLCK);
        if (descriptor >= 0)
            fcntl(descriptor, F_SETLK, &lock);
    }
    return own;
}

static uint64_t bound = UINT64_MAX;
static unsigned cores;

void machine_bound(uint64_t bytes)
{
    bound = bytes;
}

void machine_cores(unsigned percent)
{
    cores = percent > 0 && percent < 100 ? percent : 100;
}

int machine_take(unsigned gpu, uint64_t bytes)
{
    machine_state *all = machine_lock();
    uint64_t capacity = machine_capacity(gpu);
    /* a process that is being killed gives up its locks one after the other, and may hold ours longest */
    if (bytes > capacity - all->gpus[gpu].used || bytes + all->gpus[gpu].used > all->gpus[gpu].peak)
        machine_reap();
    if (bytes > capacity - all->gpus[gpu].used || self()->on[gpu].bytes + bytes > bound) {
        machine_unlock();
        return -1;
    }
    self()->on[gpu].bytes += bytes;
    all->gpus[gpu].used += bytes;
    if (all->gpus[gpu].used > all->gpus[gpu].peak)
        all->gpus[gpu].peak = all->gpus[gpu].used;
    machine_unlock();
    return 0;
}

void machine_give(unsigned gpu, uint64_t bytes)
{
    machine_state *all = machine_lock();
    machine_share *mine = &self()->on[gpu];
    if (mine->bytes < bytes)
        bytes = mine->bytes; /* what a parent took before its fork is the parent's */
    mine->bytes -= bytes;
    all->gpus[gpu].used -= bytes;
    machine_unlock();
}

uint64_t machine_used(unsigned gpu)
{
    uint64_t result;
    machine_lock();
    machine_reap();
    result = machine_shared->gpus[gpu].used;
    machine_unlock();
    return result;
}

uint64_t machine_left(unsigned gpu)
{
    uint64_t left = machine_capacity(gpu) - machine_used(gpu), mine = machine_used_by_caller(gpu);
    return bound - mine < left ? bound - mine : left;
}

uint64_t machine_peak(unsigned gpu)
{
    return machine_shared == NULL ? (machine_used(gpu), machine_shared->gpus[gpu].peak) : machine_shared->gpus[gpu].peak;
}

uint64_t machine_used_by_caller(unsigned gpu)
{
    uint64_t result;
    machine_lock();
    result = self()->on[gpu].bytes;
    machine_unlock();
    return result;
}

uint64_t machine_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

static void turn(machine_share *of, uint64_t second)
{
    if (of->second == second)
        return;
    of->busy_before = of->second + 1 == second ? of->busy_then : 0;
    of->busy_then = 0;
    of->second = second;
}

/* Per cent of the last whole second in which kernels ran; one that is longer than that fills it. */
static unsigned percent_of(const machine_share *of, uint64_t second)
{
    uint64_t from = (second - 1) * SECOND, until = second * SECOND, busy = of->busy_before;
    from = from > of->last_from ? from : of->last_from;
    until = until < of->last_until ? until : of->last_until;
    if (until > from && until - from > busy)
        busy = until - from;
    return (unsigned)(busy < SECOND ? busy / (SECOND / 100) : 100);
}

unsigned machine_processes(unsigned gpu, machine_use *list, unsigned most)
{
    unsigned found = 0;
    uint64_t second = machine_now() / SECOND;
    machine_lock();
    machine_reap();
    for (unsigned index = 0; index < machine_shared->slots; index++) {
        machine_process *slot = &machine_shared->processes[index];
        machine_share *of = &slot->on[gpu];
        if (slot->pid == 0 || (of->bytes == 0 && of->busy_ns == 0))
            continue;
        turn(of, second);
        if (found < most) {
            unsigned percent = slot->planted ? slot->percent : percent_of(of, second);
            list[found] = (machine_use){machine_living(slot) + machine()->pids_from, of->bytes, percent < 100 ? percent : 100};
        }
        found++;
    }
    machine_unlock();
    return found;
}

machine_share *machine_own(unsigned gpu)
{
    return &self()->on[gpu];
}

uint64_t machine_run(unsigned gpu, uint64_t duration)
{
    uint64_t now = machine_now(), begin = now, end;
    machine_lock();
    machine_share *mine = &self()->on[gpu];
    if (cores) {
        duration = duration * 100 / cores;
        begin = mine->last_until > now ? mine->last_until : now;
        end = begin + duration;
    } else {
        end = machine_queue(gpu, now, mine, duration);
    }
    turn(mine, now / SECOND);
    mine->busy_then += duration;
    mine->last_from = begin;
    mine->last_until = begin + duration;
    mine->busy_ns += duration;
    machine_unlock();
    return end;
}

uint64_t machine_busy(unsigned gpu, int pid)
{
    uint64_t result = 0;
    machine_lock();
    for (unsigned index = 0; index < machine_shared->slots; index++)
        if (machine_shared->processes[index].pid == pid)
            result = machine_shared->processes[index].on[gpu].busy_ns;
    machine_unlock();
    return result;
}

int machine_plant(int pid, unsigned gpu, uint64_t bytes, unsigned percent)
{
    machine_process *slot = NULL;
    uint64_t start = start_time(pid);
    if (start == 0)
        return -1;
    machine_lock();
    for (unsigned index = 0; index < machine_shared->slots; index++)
        if (machine_shared->processes[index].pid == pid && machine_shared->processes[index].planted)
            slot = &machine_shared->processes[index];
    if (slot == NULL) {
        slot = find_free();
        memset(slot, 0, sizeof *slot);
    }
    slot->pid = pid;
    slot->planted = 1;
    slot->percent = percent;
    slot->start = start;
    slot->on[gpu].bytes = bytes;
    machine_reap();
    machine_unlock();
    return 0;
}
