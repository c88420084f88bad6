/* Which real function has which wrapper: by pointer, never by name.
 *
 * The driver's own answer to dlsym and cuGetProcAddress decides about versions, flags and errors; only a pointer that is
 * known as the real side of a wrapper is exchanged for that. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "driver.h"
#include "fork.h"
#include "library.h"
#include "limits.h"
#include "lock.h"
#include "nvml_view.h"

__asm__(".symver dlerror, dlerror@" FIRST_GLIBC);

#define PLACES 1024u

static struct {
    _Atomic(void *) real;
    void *wrapper;
} places[PLACES];

static pthread_mutex_t building = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool driver_mapped;
static atomic_bool nvml_mapped;

EARLY void *psg_dlsym(void *library, const char *name);
EARLY int psg_dlopen_mode(int mode);

static void after_fork_in_child(void)
{
    building = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

AT_FORK(.in_child = after_fork_in_child);

static unsigned place_of(const void *function)
{
    return (unsigned)(((uintptr_t)function >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 54);
}

static void add_wrapper(void *real, void *wrapper)
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

/* The wrapper that stands for a real function, or the function itself. */
static void *wrapper_of(void *function)
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

static void *const wrappers[] = {
#define HOOK(symbol, base, since, flags) (void *)symbol,
#define ALSO HOOK
#include "hooks.def"
#undef HOOK
#undef ALSO
};

static void add_driver(unsigned hook, void *real)
{
    add_wrapper(real, wrappers[hook]);
}

static void map_driver(void)
{
    if (atomic_load_explicit(&driver_mapped, memory_order_acquire) || !psg_driver_loaded())
        return;
    psg_lock(&building);
    if (!atomic_load_explicit(&driver_mapped, memory_order_relaxed)) {
        psg_driver_each(add_driver);
        atomic_store_explicit(&driver_mapped, true, memory_order_release);
    }
    psg_unlock(&building);
}

static void add_nvml(void *real, void *wrapper)
{
    psg_lock(&building);
    add_wrapper(real, wrapper);
    psg_unlock(&building);
}

static void map_nvml(void)
{
    if (atomic_load_explicit(&nvml_mapped, memory_order_acquire))
        return;
    psg_depth++;
    if (psg_nvml_map(add_nvml))
        atomic_store_explicit(&nvml_mapped, true, memory_order_release);
    psg_depth--;
}

/* A process has one driver. Another copy of it, by its path or in a namespace of its own, would have contexts and memory
 * that nobody counts. */
static CUresult refuse_second_driver(void)
{
    return CUDA_ERROR_STUB_LIBRARY;
}

/* What stands for a function that the driver may have, or another library. */
static void *of_driver(void *library, void *found)
{
    void *wrapper = wrapper_of(found);
    if (wrapper != found || psg_driver_has(found) || psg_same_library(found, (void *)psg_dlsym))
        return wrapper;
    psg_depth++;
    bool is_driver = psg_same_library(found, psg_find_symbol(library, "cuGetProcAddress"));
    psg_depth--;
    if (!is_driver)
        return found;
    if (psg_driver_adopt(library)) {
        map_driver();
        return wrapper_of(found);
    }
    static atomic_bool said;
    if (!atomic_exchange(&said, true))
        psg_say("a second copy of the GPU's driver in one process is refused.");
    return (void *)refuse_second_driver;
}

/* A library that is bound to what it brings itself would be bound to the driver past us. */
EARLY int psg_dlopen_mode(int mode)
{
    if (!(mode & RTLD_DEEPBIND))
        return mode;
    psg_look_for_limits();
    return psg_limited() ? mode & ~RTLD_DEEPBIND : mode;
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
        map_driver();
    else
        map_nvml();
    void *wrapper = driver ? of_driver(library, found) : wrapper_of(found);
    if (nvml && wrapper == found)
        wrapper = psg_nvml_unknown(found, name);
    /* Callers that tell an error by dlerror must not see that our own questions found nothing. */
    dlerror();
    return wrapper;
}

static void exchange(CUresult result, void **function)
{
    if (result != CUDA_SUCCESS || !function || !*function || psg_depth > 0 || !psg_limited())
        return;
    map_driver();
    *function = wrapper_of(*function);
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
