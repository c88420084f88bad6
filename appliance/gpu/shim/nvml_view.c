/* NVML as a process sees it: memory of the share, processes of the container, and nothing that changes the GPU. */
#include <pthread.h>
#include <string.h>

#include "account.h"
#include "fork.h"
#include "library.h"
#include "limits.h"
#include "lock.h"
#include "nvml_real.h"
#include "nvml_view.h"
#include "pools.h"
#include "window.h"

/* A share of a GPU gives no right to change it. */
static nvmlReturn_t refuse(void)
{
    return NVML_ERROR_NO_PERMISSION;
}

/* Whether a GPU is one that this container has a share of, and others the rest. */
static bool is_shared(int gpu)
{
    return gpu >= 0 && (psg_memory_limit(gpu) != UINT64_MAX || psg_compute_mode(gpu) != PSG_COMPUTE_OFF);
}

static int gpu_of(nvmlDevice_t device);

/* A function of NVML whose parameters we do not know, with as many as any has, each in a register or on the stack. */
#define PARAMETERS uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f
typedef nvmlReturn_t function(PARAMETERS);

static nvmlReturn_t ask_nvml(const char *name, PARAMETERS)
{
    void *library = psg_nvml_library(true);
    function *real = library ? (function *)psg_find_symbol(library, name) : NULL;
    return real ? real(a, b, c, d, e, f) : NVML_ERROR_FUNCTION_NOT_FOUND;
}

/* Ours for such a function, under its name: it answers `refusal` where that is an error, and else what NVML does. */
#define INSTEAD_OF(symbol, refusal)                                                       \
    EXPORT nvmlReturn_t psg_##symbol(PARAMETERS) __asm__(#symbol);                        \
    nvmlReturn_t psg_##symbol(PARAMETERS)                                                 \
    {                                                                                     \
        nvmlReturn_t refused = refusal;                                                   \
        return refused == NVML_SUCCESS ? ask_nvml(#symbol, a, b, c, d, e, f) : refused;   \
    }

/* What would show neighbours, of a GPU that others have shares of. */
static nvmlReturn_t hide(uint64_t device)
{
    return is_shared(gpu_of((nvmlDevice_t)(uintptr_t)device)) ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

#define HIDDEN(symbol) INSTEAD_OF(symbol, hide(a))
#include "hidden.def"
#undef HIDDEN

/* A setter is a name of its own only for those who link to it; in a process without limits it goes to the real one. */
#define REFUSED(symbol) INSTEAD_OF(symbol, psg_limited() ? refuse() : NVML_SUCCESS)
#include "setters.def"
#undef REFUSED

bool psg_nvml_map(void (*add_pair)(void *real, void *wrapper))
{
    void *library = psg_nvml_library(false);
    if (!library)
        return false;
#define VIEW(symbol) add_pair((void *)psg_nvml.symbol, (void *)symbol);
    PSG_NVML_VIEWS(VIEW)
#undef VIEW
#define REFUSED(symbol) add_pair(psg_find_symbol(library, #symbol), (void *)psg_##symbol);
#include "setters.def"
#undef REFUSED
#define HIDDEN(symbol) add_pair(psg_find_symbol(library, #symbol), (void *)psg_##symbol);
#include "hidden.def"
#undef HIDDEN
    return true;
}

/* What does not change the GPU, beside all that gets or queries something. */
static const char *const harmless[] = {
    "nvmlDeviceClearCpuAffinity", "nvmlDeviceIsMigDeviceHandle", "nvmlDeviceOnSameBoard", "nvmlDeviceReadPRMCounters_v1",
    "nvmlDeviceRegisterEvents", "nvmlDeviceSetCpuAffinity", "nvmlDeviceValidateInforom", "nvmlErrorString",
    "nvmlEventSetCreate", "nvmlEventSetFree", "nvmlEventSetRegisterGpuOperationalEvents_v1", "nvmlEventSetWait",
    "nvmlEventSetWait_v2", "nvmlEventSetWait_v3", "nvmlGpmSampleAlloc", "nvmlGpmSampleFree", "nvmlInit",
    "nvmlInitWithFlags", "nvmlInit_v2", "nvmlShutdown", "nvmlSystemEventSetCreate", "nvmlSystemEventSetFree",
    "nvmlSystemEventSetWait", "nvmlSystemRegisterEvents",
};

static bool only_asks(const char *name)
{
    static const char *const changes[] = {"Set", "Clear", "Reset"};
    const char *asks = strstr(name, "Get");
    asks = asks ? asks : strstr(name, "Query");
    for (size_t i = 0; asks && i < sizeof changes / sizeof *changes; i++) {
        const char *change = strstr(name, changes[i]);
        if (change && change < asks)
            return false;
    }
    for (size_t i = 0; !asks && i < sizeof harmless / sizeof *harmless; i++)
        if (strcmp(name, harmless[i]) == 0)
            return true;
    return asks;
}

void *psg_nvml_unknown(void *found, const char *name)
{
    return only_asks(name) || !psg_same_library(found, (void *)psg_nvml.nvmlInit_v2) ? found : (void *)refuse;
}

/* Looking up is cheap beside what NVML does, so nothing is kept. */
static int gpu_of(nvmlDevice_t device)
{
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    return psg_limited() && REAL(nvmlDeviceGetUUID, device, uuid, sizeof uuid) == NVML_SUCCESS ? psg_gpu_of_uuid(uuid) : -1;
}

/* Memory ---------------------------------------------------------------------------------------------------------- */

/* False where the whole memory is the container's: then NVML's own numbers say more than the account. */
static bool show(int gpu, unsigned long long *total, unsigned long long *free_bytes, unsigned long long *used)
{
    if (psg_memory_limit(gpu) >= *total)
        return false;
    psg_reap();
    psg_pools_look(gpu);
    uint64_t taken = psg_held(gpu);
    *total = psg_memory_limit(gpu);
    *used = taken < *total ? taken : *total;
    *free_bytes = *total - *used;
    return true;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    nvmlReturn_t result = REAL(nvmlDeviceGetMemoryInfo, device, memory);
    int gpu = result == NVML_SUCCESS ? gpu_of(device) : -1;
    if (gpu >= 0)
        show(gpu, &memory->total, &memory->free, &memory->used);
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    nvmlReturn_t result = REAL(nvmlDeviceGetMemoryInfo_v2, device, memory);
    int gpu = result == NVML_SUCCESS ? gpu_of(device) : -1;
    if (gpu >= 0 && show(gpu, &memory->total, &memory->free, &memory->used))
        memory->reserved = 0;
    return result;
}

/* Processes ------------------------------------------------------------------------------------------------------- */

/* The processes as the account knows them: with the numbers that they have in this container. */
static nvmlReturn_t list_processes(int gpu, unsigned *count, void *infos, size_t size)
{
    struct psg_holder holders[PSG_SLOTS];
    unsigned found = psg_holders(gpu, holders, PSG_SLOTS);
    unsigned room = *count;
    *count = found;
    if (found > room || (found && !infos))
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < found; i++) {
        /* All versions begin with these two fields; later ones name a slice, which a whole GPU has not. */
        nvmlProcessInfo_v2_t info = {.pid = holders[i].pid, .usedGpuMemory = holders[i].bytes,
                                     .gpuInstanceId = UINT32_MAX, .computeInstanceId = UINT32_MAX};
        memcpy((char *)infos + i * size, &info, size);
    }
    return NVML_SUCCESS;
}

#define LISTS(symbol, type, list)                                    \
    EXPORT nvmlReturn_t symbol(nvmlDevice_t device, unsigned int *count, type *infos) \
    {                                                                \
        int gpu = count ? gpu_of(device) : -1;                       \
        return gpu < 0 ? REAL(symbol, device, count, infos) : list(gpu, count, infos, sizeof *infos); \
    }

LISTS(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, list_processes)
LISTS(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, list_processes)
LISTS(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, list_processes)

/* What draws, and what comes through a daemon of MPS, is no process of a share. */
static nvmlReturn_t list_nothing(int gpu, unsigned int *count, void *infos, size_t size)
{
    (void)gpu, (void)infos, (void)size;
    *count = 0;
    return NVML_SUCCESS;
}

LISTS(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, list_nothing)
LISTS(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, list_nothing)
LISTS(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t, list_nothing)
LISTS(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, list_nothing)
LISTS(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, list_nothing)
LISTS(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t, list_nothing)

EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *processes)
{
    int gpu = processes ? gpu_of(device) : -1;
    if (gpu < 0)
        return REAL(nvmlDeviceGetRunningProcessDetailList, device, processes);
    struct psg_holder holders[PSG_SLOTS];
    unsigned found = processes->mode == NVML_PROCESS_MODE_COMPUTE || processes->mode == NVML_PROCESS_MODE_ALL
                         ? psg_holders(gpu, holders, PSG_SLOTS) : 0;
    unsigned room = processes->numProcArrayEntries;
    processes->numProcArrayEntries = found;
    if (found > room || (found && !processes->procArray))
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < found; i++)
        processes->procArray[i] = (nvmlProcessDetail_v1_t){.pid = holders[i].pid, .usedGpuMemory = holders[i].bytes,
                                                           .gpuInstanceId = UINT32_MAX, .computeInstanceId = UINT32_MAX};
    return NVML_SUCCESS;
}

/* NVML looks over a sixth of a second at least. */
#define LOOK (UINT64_C(1000000000) / 6)

struct look {
    uint64_t at, busy_ns;
    unsigned percent;
};

static pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER;
static struct look looks[PSG_GPUS];

static void after_fork_in_child(void)
{
    looking = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

AT_FORK(.in_child = after_fork_in_child);

/* How much of the time since the last look the container's own work took. The first look takes as long as NVML's own. */
static unsigned own_percent(int gpu)
{
    struct psg_total *total = psg_total(gpu);
    struct look *last = &looks[gpu];
    if (!total)
        return 0;
    psg_lock(&looking);
    if (!last->at) {
        *last = (struct look){psg_now(), __atomic_load_n(&total->busy_ns, __ATOMIC_RELAXED), 0};
        psg_unlock(&looking);
        psg_sleep_until(psg_now() + LOOK);
        psg_lock(&looking);
    }
    uint64_t now = psg_now(), busy_ns = __atomic_load_n(&total->busy_ns, __ATOMIC_RELAXED);
    if (now >= last->at + LOOK) {
        uint64_t worked = busy_ns > last->busy_ns ? busy_ns - last->busy_ns : 0;
        *last = (struct look){now, busy_ns, (unsigned)smaller(100 * worked / (now - last->at), 100)};
    }
    unsigned percent = last->percent;
    psg_unlock(&looking);
    return percent;
}

/* How much of the time memory was in use by whom, nobody tells. */
EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
    nvmlReturn_t result = REAL(nvmlDeviceGetUtilizationRates, device, rates);
    int gpu = result == NVML_SUCCESS ? gpu_of(device) : -1;
    if (!is_shared(gpu))
        return result;
    if (psg_compute_mode(gpu) == PSG_COMPUTE_OFF) {
        *rates = (nvmlUtilization_t){0};
        return NVML_ERROR_NOT_SUPPORTED;
    }
    *rates = (nvmlUtilization_t){.gpu = own_percent(gpu)};
    return NVML_SUCCESS;
}

/* Samples of other containers are left out. */
EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                                    unsigned int *count, unsigned long long since)
{
    nvmlReturn_t result = REAL(nvmlDeviceGetProcessUtilization, device, samples, count, since);
    if (result != NVML_SUCCESS || !samples || gpu_of(device) < 0)
        return result;
    unsigned kept = 0;
    for (unsigned i = 0; i < *count; i++)
        if (psg_is_ours(samples[i].pid))
            samples[kept++] = samples[i];
    *count = kept;
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *processes)
{
    nvmlReturn_t result = REAL(nvmlDeviceGetProcessesUtilizationInfo, device, processes);
    if (result != NVML_SUCCESS || !processes->procUtilArray || gpu_of(device) < 0)
        return result;
    unsigned kept = 0;
    for (unsigned i = 0; i < processes->processSamplesCount; i++)
        if (psg_is_ours(processes->procUtilArray[i].pid))
            processes->procUtilArray[kept++] = processes->procUtilArray[i];
    processes->processSamplesCount = kept;
    return result;
}
