/* The limits of this container, as the agent writes them. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fork.h"
#include "limits.h"
#include "lock.h"

#ifdef PENSTOCK_TEST_PATHS
static const char *limits_path(void)
{
    return getenv("PENSTOCK_TEST_LIMITS");
}

const char *psg_account_path(void)
{
    return getenv("PENSTOCK_TEST_ACCOUNT");
}
#else
static const char *limits_path(void)
{
    return "/run/penstock/limits/limits";
}

const char *psg_account_path(void)
{
    return "/run/penstock/account/account";
}
#endif

enum { UNKNOWN, ABSENT, LIMITED, UNREADABLE };

static pthread_mutex_t attaching = PTHREAD_MUTEX_INITIALIZER;
static atomic_int state;
static const struct psg_limits *limits;

void psg_say(const char *text)
{
    static const char name[] = "penstock: ";
    if (write(STDERR_FILENO, name, sizeof name - 1) > 0 && write(STDERR_FILENO, text, strlen(text)) > 0)
        (void)!write(STDERR_FILENO, "\n", 1);
}

static int attach(void)
{
    const char *path = limits_path();
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return ABSENT;
    int result = UNREADABLE;
    /* Behind the end of a shorter file its last page has zeros: no fallback, nothing uncounted, lost or forgotten. */
    if (lseek(file, 0, SEEK_END) >= (off_t)offsetof(struct psg_limits, fallback)) {
        const struct psg_limits *found = mmap(NULL, sizeof *found, PROT_READ, MAP_SHARED, file, 0);
        if (found != MAP_FAILED && memcmp(found->magic, PSG_LIMITS_MAGIC, sizeof found->magic) == 0 &&
            found->version == PSG_VERSION && found->count <= PSG_GPUS) {
            limits = found;
            result = LIMITED;
        }
    }
    close(file);
    if (result == UNREADABLE)
        psg_say("the limits of this container cannot be read; CUDA is refused. Start the session again.");
    return result;
}

void psg_look_for_limits(void)
{
    if (atomic_load_explicit(&state, memory_order_acquire) > ABSENT)
        return;
    psg_lock(&attaching);
    if (atomic_load_explicit(&state, memory_order_relaxed) <= ABSENT)
        atomic_store_explicit(&state, attach(), memory_order_release);
    psg_unlock(&attaching);
}

bool psg_limited(void)
{
    int now = atomic_load_explicit(&state, memory_order_acquire);
    if (now == UNKNOWN) {
        psg_look_for_limits();
        now = atomic_load_explicit(&state, memory_order_acquire);
    }
    return now > ABSENT;
}

uint32_t psg_gpus(void)
{
    return psg_limited() && limits ? limits->count : 0;
}

bool psg_limits_readable(void)
{
    return psg_limited() && limits;
}

static void after_fork_in_child(void)
{
    attaching = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

AT_FORK(.in_child = after_fork_in_child);

const char *psg_uuid_of_gpu(int gpu)
{
    return limits->gpu[gpu].uuid;
}

/* "GPU-1234…" and "MIG-1234…" name their device by what follows. */
static const char *hexadecimal(const char *text)
{
    const char *dash = strchr(text, '-');
    return dash ? dash + 1 : text;
}

int psg_gpu_of_uuid(const char *text)
{
    for (uint32_t i = 0; i < psg_gpus(); i++)
        if (strncasecmp(hexadecimal(limits->gpu[i].uuid), hexadecimal(text), PSG_UUID - 4) == 0)
            return (int)i;
    return -1;
}

uint64_t psg_memory_limit(int gpu)
{
    uint64_t bytes = __atomic_load_n(&limits->gpu[gpu].memory_bytes, __ATOMIC_ACQUIRE);
    return bytes ? bytes : UINT64_MAX;
}

uint64_t psg_uncounted(int gpu)
{
    return __atomic_load_n(&limits->uncounted[gpu], __ATOMIC_RELAXED);
}

int64_t psg_lost(int gpu)
{
    return __atomic_load_n(&limits->lost_ns[gpu], __ATOMIC_RELAXED);
}

int64_t psg_forgotten(int gpu)
{
    return __atomic_load_n(&limits->forgotten_ns[gpu], __ATOMIC_RELAXED);
}

uint32_t psg_compute_mode(int gpu)
{
    return __atomic_load_n(&limits->gpu[gpu].compute, __ATOMIC_ACQUIRE);
}

/* An agent that was stopped in the middle of writing leaves an odd sequence; what stands there must do then. */
enum { ATTEMPTS = 1000 };

enum { TIMETABLES = 3 };

static void copy(struct psg_timetable *to, const struct psg_timetable *from, size_t count)
{
    for (size_t i = 0; i < count * sizeof *to / sizeof(uint64_t); i++)
        ((uint64_t *)to)[i] = __atomic_load_n((const uint64_t *)from + i, __ATOMIC_ACQUIRE);
}

static void read_timetables(int gpu, struct psg_timetable tables[TIMETABLES])
{
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        uint32_t before = __atomic_load_n(&limits->sequence, __ATOMIC_ACQUIRE);
        copy(tables, limits->gpu[gpu].timetable, TIMETABLES - 1);
        copy(&tables[TIMETABLES - 1], &limits->fallback[gpu], 1);
        if (before % 2 == 0 && before == __atomic_load_n(&limits->sequence, __ATOMIC_RELAXED))
            return;
    }
}

bool psg_timetable(int gpu, uint64_t now, struct psg_timetable *found, uint64_t *changes_ns)
{
    struct psg_timetable tables[TIMETABLES];
    read_timetables(gpu, tables);
    bool any = false;
    *changes_ns = UINT64_MAX;
    for (int i = 0; i < TIMETABLES; i++) {
        if (tables[i].period_ns == 0)
            continue;
        if (tables[i].from_ns > now) {
            if (tables[i].from_ns < *changes_ns)
                *changes_ns = tables[i].from_ns;
        } else if (!any || tables[i].from_ns >= found->from_ns) {
            *found = tables[i];
            any = true;
        }
    }
    return any;
}
