/* NVML as far as discovery goes: the same symbols, return codes and rules of use as NVIDIA's libnvidia-ml.so.1.
 *
 * FAKE_NVML_GPUS   how many GPUs there are (default 0)
 * FAKE_NVML_INIT   the code that initialisation returns (default 0), such as 9 for a driver that is not loaded
 * FAKE_NVML_LOST   the index of a GPU that has fallen off the bus
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    GPU_IS_LOST = 15,
};

#define MOST 64
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
