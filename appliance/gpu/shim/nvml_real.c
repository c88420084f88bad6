/* NVML's own functions, found by name. */
#include <stdatomic.h>

#include "library.h"
#include "nvml_real.h"

struct psg_nvml psg_nvml;

static atomic_bool loaded;

static void fill(void *library)
{
#define FIND(symbol) psg_nvml.symbol = (__typeof__(&symbol))psg_find_symbol(library, #symbol);
    PSG_NVML_VIEWS(FIND)
    PSG_NVML_USED(FIND)
#undef FIND
    atomic_store_explicit(&loaded, true, memory_order_release);
}

void *psg_nvml_library(bool load)
{
    void *library = psg_library("libnvidia-ml.so.1", load);
    if (library && !atomic_load_explicit(&loaded, memory_order_acquire))
        fill(library);
    return library;
}

bool psg_nvml_load(void)
{
    return atomic_load_explicit(&loaded, memory_order_acquire) || psg_nvml_library(true);
}
