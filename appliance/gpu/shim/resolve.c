/* Which real function has which wrapper: by pointer, never by name.
 *
 * The driver's own answer to dlsym and cuGetProcAddress decides about versions, flags and errors; only a pointer that is
 * known as the real side of a wrapper is exchanged for that. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "driver.h"
#include "shim.h"

/* glibc moved these into libc under a new version; the first version is in every glibc. */
#if defined(__aarch64__)
#define FIRST_GLIBC "GLIBC_2.17"
#else
#define FIRST_GLIBC "GLIBC_2.2.5"
#endif
__asm__(".symver dlvsym, dlvsym@" FIRST_GLIBC);
__asm__(".symver dlopen, dlopen@" FIRST_GLIBC);
__asm__(".symver dlerror, dlerror@" FIRST_GLIBC);

/* Sanitizers look up functions before they are ready for checked code. */
#define EARLY __attribute__((no_sanitize("address", "undefined", "thread")))

typedef void *(*finder)(void *, const char *);

#define PLACES 1024u

static struct {
    _Atomic(void *) real;
    void *wrapper;
} places[PLACES];

static pthread_mutex_t building = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool driver_ready;
static atomic_bool nvml_ready;

struct psg_driver psg_driver;
__thread int psg_depth;

void psg_resolve_forget(void)
{
    building = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

EARLY finder psg_next_dlsym(void);
EARLY void *psg_dlsym(void *library, const char *name);

finder psg_next_dlsym(void)
{
    static finder next;
    finder found = __atomic_load_n(&next, __ATOMIC_RELAXED);
    if (!found) {
        found = (finder)dlvsym(RTLD_NEXT, "dlsym", FIRST_GLIBC);
        __atomic_store_n(&next, found, __ATOMIC_RELAXED);
    }
    return found;
}

void *psg_find(void *library, const char *name)
{
    return psg_next_dlsym()(library, name);
}

void *psg_library(const char *name, bool load)
{
    void *library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    return library || !load ? library : dlopen(name, RTLD_LAZY);
}

static unsigned place_of(const void *function)
{
    return (unsigned)(((uintptr_t)function >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 54);
}

static void add(void *real, void *wrapper)
{
    if (!real || real == wrapper)
        return;
    for (unsigned i = place_of(real), tried = 0; tried < PLACES; i = (i + 1) % PLACES, tried++) {
        void *here = atomic_load_explicit(&places[i].real, memory_order_relaxed);
        if (here == real)
            return;
        if (!here) {
            places[i].wrapper = wrapper;
            atomic_store_explicit(&places[i].real, real, memory_order_release);
            return;
        }
    }
}

void *psg_wrapper(void *function)
{
    for (unsigned i = place_of(function), tried = 0; tried < PLACES; i = (i + 1) % PLACES, tried++) {
        void *here = atomic_load_explicit(&places[i].real, memory_order_acquire);
        if (here == function)
            return places[i].wrapper;
        if (!here)
            break;
    }
    return function;
}

struct question {
    const char *symbol;
    const char *base;
    void *wrapper;
    size_t offset;
    int since;
    cuuint64_t flags;
};

static const struct question questions[] = {
#define HOOK(symbol, base, since, flags) {#symbol, base, (void *)symbol, offsetof(struct psg_driver, symbol), since, flags},
#define ALSO HOOK
#include "hooks.def"
#undef HOOK
#undef ALSO
};

enum { QUESTIONS = sizeof questions / sizeof *questions };

/* What a library answered. It is asked without a lock of ours, for the dynamic linker has one that it holds while it runs
 * constructors, and these may come here; two threads may so ask the same. */
struct answers {
    struct psg_driver driver;
    void *linked[QUESTIONS];
    void *asked[QUESTIONS];
};

static void *ask(const struct psg_driver *driver, const struct question *question)
{
    void *function = NULL;
    CUdriverProcAddressQueryResult status;
    CUresult result = CUDA_ERROR_NOT_FOUND;
    if (driver->cuGetProcAddress_v2)
        result = driver->cuGetProcAddress_v2(question->base, &function, question->since, question->flags, &status);
    else if (driver->cuGetProcAddress)
        result = driver->cuGetProcAddress(question->base, &function, question->since, question->flags);
    return result == CUDA_SUCCESS ? function : NULL;
}

/* An older driver answers for the version that it has, which is another function of ours. */
static bool is_linked(const struct answers *answers, const void *function)
{
    for (int i = 0; i < QUESTIONS; i++)
        if (answers->linked[i] == function)
            return true;
    return false;
}

static void fill(struct answers *answers, void *library)
{
    struct psg_driver *driver = &answers->driver;
    for (int i = 0; i < QUESTIONS; i++) {
        answers->linked[i] = psg_find(library, questions[i].symbol);
        memcpy((char *)driver + questions[i].offset, &answers->linked[i], sizeof(void *));
    }
#define USE(symbol) driver->symbol = (__typeof__(&symbol))psg_find(library, #symbol);
    PSG_USED_FUNCTIONS(USE)
#undef USE
    for (int i = 0; i < QUESTIONS; i++) {
        answers->asked[i] = ask(driver, &questions[i]);
        if (!answers->linked[i] && answers->asked[i] && !is_linked(answers, answers->asked[i]))
            memcpy((char *)driver + questions[i].offset, &answers->asked[i], sizeof(void *));
    }
}

static bool load(bool needed)
{
    if (atomic_load_explicit(&driver_ready, memory_order_acquire))
        return true;
    struct answers answers = {0};
    psg_depth++;
    void *library = psg_library("libcuda.so.1", needed);
    if (library)
        fill(&answers, library);
    psg_depth--;
    if (!library)
        return false;
    pthread_mutex_lock(&building);
    if (!atomic_load_explicit(&driver_ready, memory_order_relaxed)) {
        psg_driver = answers.driver;
        /* What a name says of a pointer is certain, so it comes before what the resolver says. */
        for (int i = 0; i < QUESTIONS; i++)
            add(answers.linked[i], questions[i].wrapper);
        for (int i = 0; i < QUESTIONS; i++)
            add(answers.asked[i], questions[i].wrapper);
        atomic_store_explicit(&driver_ready, true, memory_order_release);
    }
    pthread_mutex_unlock(&building);
    return true;
}

bool psg_driver_load(void)
{
    return load(true);
}

static void add_nvml(void *real, void *wrapper)
{
    pthread_mutex_lock(&building);
    add(real, wrapper);
    pthread_mutex_unlock(&building);
}

static void load_nvml(void)
{
    if (atomic_load_explicit(&nvml_ready, memory_order_acquire))
        return;
    psg_depth++;
    if (psg_library("libnvidia-ml.so.1", false)) {
        psg_nvml_map(add_nvml);
        atomic_store_explicit(&nvml_ready, true, memory_order_release);
    }
    psg_depth--;
}

void *psg_dlsym(void *library, const char *name)
{
    void *found = psg_next_dlsym()(library, name);
    if (!found)
        return found;
    bool driver = name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
    bool nvml = !driver && strncmp(name, "nvml", 4) == 0;
    if ((!driver && !nvml) || psg_depth > 0)
        return found;
    psg_look_for_limits();
    if (!psg_limited())
        return found;
    if (driver)
        load(false);
    else
        load_nvml();
    /* Callers that tell an error by dlerror must not see that our own questions found nothing. */
    dlerror();
    return psg_wrapper(found);
}

static void exchange(CUresult result, void **function)
{
    if (result == CUDA_SUCCESS && function && *function && psg_depth == 0 && psg_limited())
        *function = psg_wrapper(*function);
}

EXPORT CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
    CUresult result = REAL(cuGetProcAddress, symbol, function, version, flags);
    exchange(result, function);
    return result;
}

EXPORT CUresult cuGetProcAddress_ptsz(const char *symbol, void **function, int version, cuuint64_t flags)
{
    CUresult result = REAL(cuGetProcAddress_ptsz, symbol, function, version, flags);
    exchange(result, function);
    return result;
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *status)
{
    CUresult result = REAL(cuGetProcAddress_v2, symbol, function, version, flags, status);
    exchange(result, function);
    return result;
}

EXPORT CUresult cuGetProcAddress_v2_ptsz(const char *symbol, void **function, int version, cuuint64_t flags,
                                         CUdriverProcAddressQueryResult *status)
{
    CUresult result = REAL(cuGetProcAddress_v2_ptsz, symbol, function, version, flags, status);
    exchange(result, function);
    return result;
}
