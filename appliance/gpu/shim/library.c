/* Other libraries and their functions, found by what the C library has and not by our own dlsym. */
#include <dlfcn.h>

#include "library.h"

__asm__(".symver dlvsym, dlvsym@" FIRST_GLIBC);
__asm__(".symver dladdr, dladdr@" FIRST_GLIBC);
__asm__(".symver dlopen, dlopen@" FIRST_GLIBC);

psg_finder psg_next_dlsym(void)
{
    static psg_finder next;
    psg_finder found = __atomic_load_n(&next, __ATOMIC_RELAXED);
    if (!found) {
        found = (psg_finder)dlvsym(RTLD_NEXT, "dlsym", FIRST_GLIBC);
        __atomic_store_n(&next, found, __ATOMIC_RELAXED);
    }
    return found;
}

void *psg_next_dlopen(void)
{
    static void *next;
    void *found = __atomic_load_n(&next, __ATOMIC_RELAXED);
    if (!found) {
        found = dlvsym(RTLD_NEXT, "dlopen", FIRST_GLIBC);
        __atomic_store_n(&next, found, __ATOMIC_RELAXED);
    }
    return found;
}

void *psg_find_symbol(void *library, const char *name)
{
    return psg_next_dlsym()(library, name);
}

bool psg_same_library(const void *one, const void *other)
{
    Dl_info first, second;
    return one && other && dladdr(one, &first) && dladdr(other, &second) && first.dli_fbase == second.dli_fbase;
}

void *psg_library(const char *name, bool load)
{
    void *library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    return library || !load ? library : dlopen(name, RTLD_LAZY);
}
