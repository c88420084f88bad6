/* NVML as far as discovery goes: the same symbols, return codes and rules of use as NVIDIA's libnvidia-ml.so.1.
 *
 * FAKE_NVML_GPUS   how many GPUs there are (default 0)
 * FAKE_NVML_INIT   the code that initialisation returns (default 0), such as 9 for a driver that is not loaded
 * FAKE_NVML_LOST   the index of a GPU that has fallen off the bus
 * FAKE_NVML_NVLINK how many neighbouring GPUs NVLink joins (default 0: there is no NVLink)
 * FAKE_NVML_NUMA   how many neighbouring GPUs hang on one NUMA node (default: all of them)
 * FAKE_NVML_CORES  how many cores a NUMA node has (default 1)
 * FAKE_NVML_HIDDEN 1 where a virtual machine hides how it is built
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    GPU_IS_LOST = 15,
};

enum { P2P_OK = 0, P2P_NOT_SUPPORTED = 5, P2P_UNKNOWN = 6 };
enum { CAPS_NVLINK = 2, CAPS_UNKNOWN = 5 };
enum { TOPOLOGY_NODE = 40, TOPOLOGY_SYSTEM = 50 };

#define MOST 64
#define WORD_BITS (8 * sizeof(unsigned long))
#define MEMORY_BYTES (16384ULL << 20)

typedef struct {
    unsigned index;
} device;

typedef struct {
    unsigned long long total, free, used;
} memory;

static device devices[MOST];
static int users;

static int number(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    return text ? atoi(text) : otherwise;
}

static unsigned count(void)
{
    int wanted = number("FAKE_NVML_GPUS", 0);
    return wanted < MOST ? (unsigned)wanted : MOST;
}

static int check(const device *given, const void *result)
{
    if (users == 0)
        return UNINITIALIZED;
    if (result == NULL || given < devices || given >= devices + count())
        return INVALID_ARGUMENT;
    return (int)given->index == number("FAKE_NVML_LOST", -1) ? GPU_IS_LOST : SUCCESS;
}

static int put(char *buffer, unsigned size, const char *text)
{
    if (strlen(text) + 1 > size)
        return INSUFFICIENT_SIZE;
    strcpy(buffer, text);
    return SUCCESS;
}

int nvmlInitWithFlags(unsigned flags)
{
    int code = number("FAKE_NVML_INIT", SUCCESS);
    (void)flags;
    if (code != SUCCESS)
        return code;
    for (unsigned index = 0; index < MOST; index++)
        devices[index].index = index;
    users++;
    return SUCCESS;
}

int nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

int nvmlShutdown(void)
{
    if (users == 0)
        return UNINITIALIZED;
    users--;
    return SUCCESS;
}

const char *nvmlErrorString(int code)
{
    switch (code) {
    case SUCCESS: return "The operation was successful";
    case UNINITIALIZED: return "NVML was not first initialized";
    case NOT_SUPPORTED: return "Not Supported";
    case INVALID_ARGUMENT: return "A supplied argument is invalid";
    case INSUFFICIENT_SIZE: return "An input argument is not large enough";
    case DRIVER_NOT_LOADED: return "NVIDIA driver is not loaded";
    case GPU_IS_LOST: return "GPU is lost";
    default: return "Unknown error";
    }
}

int nvmlDeviceGetCount_v2(unsigned *result)
{
    if (users == 0)
        return UNINITIALIZED;
    if (result == NULL)
        return INVALID_ARGUMENT;
    *result = count();
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **result)
{
    if (users == 0)
        return UNINITIALIZED;
    if (result == NULL || index >= count())
        return INVALID_ARGUMENT;
    *result = &devices[index];
    return check(*result, result);
}

int nvmlDeviceGetUUID(device *given, char *buffer, unsigned size)
{
    char text[64];
    int code = check(given, buffer);
    if (code != SUCCESS)
        return code;
    snprintf(text, sizeof text, "GPU-00000000-0000-0000-0000-%012u", given->index);
    return put(buffer, size, text);
}

int nvmlDeviceGetName(device *given, char *buffer, unsigned size)
{
    int code = check(given, buffer);
    return code != SUCCESS ? code : put(buffer, size, "NVIDIA Fake 16GB");
}

int nvmlDeviceGetMemoryInfo(device *given, memory *result)
{
    int code = check(given, result);
    if (code != SUCCESS)
        return code;
    result->total = MEMORY_BYTES;
    result->used = 0;
    result->free = MEMORY_BYTES;
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *buffer, unsigned size)
{
    if (users == 0)
        return UNINITIALIZED;
    return buffer == NULL ? INVALID_ARGUMENT : put(buffer, size, "550.54.15");
}

int nvmlSystemGetCudaDriverVersion_v2(int *result)
{
    /* the only call that NVIDIA allows without initialisation */
    if (result == NULL)
        return INVALID_ARGUMENT;
    *result = 12040;
    return SUCCESS;
}

static int check_pair(const device *one, const device *other, const void *result)
{
    int code = check(one, result);
    if (code == SUCCESS)
        code = check(other, result);
    if (code == SUCCESS && one == other)
        code = INVALID_ARGUMENT;
    return code == SUCCESS && number("FAKE_NVML_HIDDEN", 0) ? NOT_SUPPORTED : code;
}

static unsigned part(const device *given, const char *variable, unsigned otherwise)
{
    unsigned each = (unsigned)number(variable, (int)otherwise);
    return given->index / (each ? each : 1);
}

int nvmlDeviceGetP2PStatus(device *one, device *other, unsigned caps, unsigned *result)
{
    int code = check_pair(one, other, result);
    if (code == SUCCESS && caps >= CAPS_UNKNOWN)
        code = INVALID_ARGUMENT;
    if (code != SUCCESS)
        return code;
    *result = P2P_NOT_SUPPORTED;
    if (caps == CAPS_NVLINK && number("FAKE_NVML_NVLINK", 0) > 1
        && part(one, "FAKE_NVML_NVLINK", 1) == part(other, "FAKE_NVML_NVLINK", 1))
        *result = P2P_OK;
    return SUCCESS;
}

int nvmlDeviceGetTopologyCommonAncestor(device *one, device *other, unsigned *result)
{
    int code = check_pair(one, other, result);
    if (code != SUCCESS)
        return code;
    *result = part(one, "FAKE_NVML_NUMA", MOST) == part(other, "FAKE_NVML_NUMA", MOST) ? TOPOLOGY_NODE : TOPOLOGY_SYSTEM;
    return SUCCESS;
}

int nvmlDeviceGetCpuAffinity(device *given, unsigned words, unsigned long *result)
{
    unsigned cores = (unsigned)number("FAKE_NVML_CORES", 1);
    int code = check(given, result);
    if (code == SUCCESS && words == 0)
        code = INVALID_ARGUMENT;
    if (code == SUCCESS && number("FAKE_NVML_HIDDEN", 0))
        code = NOT_SUPPORTED;
    if (code != SUCCESS)
        return code;
    memset(result, 0, words * sizeof *result);
    for (unsigned core = part(given, "FAKE_NVML_NUMA", MOST) * cores, last = core + cores; core < last; core++)
        if (core / WORD_BITS < words)
            result[core / WORD_BITS] |= 1UL << core % WORD_BITS;
    return SUCCESS;
}
