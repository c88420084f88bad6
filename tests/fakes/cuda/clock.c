/* A clock for tests, to be preloaded: CLOCK_MONOTONIC passes only while all take part in it sleep, and then at once to
 * when the first of them wakes. So hours of a GPU take seconds, and the load of the computer changes nothing.
 *
 * VIRTUAL_CLOCK          file of the clock that processes share
 * VIRTUAL_CLOCK_PARTIES  how many processes take part; time stands until all have come, and goes on as they end
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000ULL
#define START (1000 * SECOND)
#define LOOK 20 /* ns that a look at the clock takes, so that none looks for ever at the same time */
#define PARTIES 64
#define AWAKE 0

typedef struct {
    pthread_mutex_t mutex;
    uint64_t now;
    int parties, came, asleep;
    uint64_t wakes[PARTIES]; /* AWAKE: so, or not there */
    sem_t woken[PARTIES];    /* one each: who still has to sleep is left alone, as waking costs more than all else here */
} shared_clock;

static shared_clock *shared;
static int place = -1;

static void prepare(void)
{
    pthread_mutexattr_t mutex;
    pthread_mutexattr_init(&mutex);
    pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&shared->mutex, &mutex);
    for (int each = 0; each < PARTIES; each++)
        sem_init(&shared->woken[each], 1, 0);
    shared->parties = atoi(getenv("VIRTUAL_CLOCK_PARTIES"));
    __atomic_store_n(&shared->now, START, __ATOMIC_RELEASE);
}

__attribute__((constructor)) static void join(void)
{
    const char *path = getenv("VIRTUAL_CLOCK");
    int file;
    if (path == NULL || (file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666)) < 0)
        return;
    flock(file, LOCK_EX);
    if (ftruncate(file, sizeof *shared) == 0)
        shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared->now == 0)
        prepare();
    place = shared->came++;
    flock(file, LOCK_UN);
    close(file);
}

/* With the lock held: where all sleep, it is the time at which the first wakes, and who wakes by then is woken. */
static void pass(void)
{
    uint64_t first = UINT64_MAX;
    if (shared->came < shared->parties || shared->asleep < shared->parties)
        return;
    for (int each = 0; each < PARTIES; each++)
        if (shared->wakes[each] != AWAKE && shared->wakes[each] < first)
            first = shared->wakes[each];
    if (first != UINT64_MAX && first > shared->now)
        __atomic_store_n(&shared->now, first, __ATOMIC_RELEASE);
    for (int each = 0; each < PARTIES; each++)
        if (shared->wakes[each] != AWAKE && shared->wakes[each] <= shared->now) {
            shared->wakes[each] = AWAKE;
            shared->asleep--;
            sem_post(&shared->woken[each]);
        }
}

__attribute__((destructor)) static void leave(void)
{
    if (shared == NULL)
        return;
    pthread_mutex_lock(&shared->mutex);
    shared->parties--;
    shared->came--;
    pass();
    pthread_mutex_unlock(&shared->mutex);
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    static int (*real)(clockid_t, struct timespec *);
    uint64_t now;
    if (clock != CLOCK_MONOTONIC || shared == NULL) {
        if (real == NULL)
            real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
        return real(clock, time);
    }
    now = __atomic_add_fetch(&shared->now, LOOK, __ATOMIC_ACQ_REL);
    time->tv_sec = (time_t)(now / SECOND);
    time->tv_nsec = (long)(now % SECOND);
    return 0;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left)
{
    static int (*real)(clockid_t, int, const struct timespec *, struct timespec *);
    uint64_t wake = (uint64_t)until->tv_sec * SECOND + (uint64_t)until->tv_nsec;
    if (clock != CLOCK_MONOTONIC || shared == NULL) {
        if (real == NULL)
            real = (int (*)(clockid_t, int, const struct timespec *, struct timespec *))dlsym(RTLD_NEXT, "clock_nanosleep");
        return real(clock, flags, until, left);
    }
    pthread_mutex_lock(&shared->mutex);
    if (!(flags & TIMER_ABSTIME))
        wake += shared->now;
    if (wake <= shared->now) {
        pthread_mutex_unlock(&shared->mutex);
        return 0;
    }
    shared->wakes[place] = wake;
    shared->asleep++;
    pass();
    pthread_mutex_unlock(&shared->mutex);
    while (sem_wait(&shared->woken[place]) != 0)
        ;
    return 0;
}
