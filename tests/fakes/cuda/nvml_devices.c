/* The fake NVML's devices: how it starts, what there is and how it hangs together. */
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include "nvml_devices.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define UUID_SIZE 80

static struct nvmlDevice_st devices[MACHINE_GPUS * (MACHINE_INSTANCES + 1)];
static int users;

static nvmlDevice_t device_at(unsigned gpu, int instance)
{
    nvmlDevice_t device = &devices[gpu * (MACHINE_INSTANCES + 1) + (unsigned)(instance + 1)];
    device->gpu = gpu;
    device->instance = instance;
    return device;
}

nvmlReturn_t device_check(nvmlDevice_t device, const void *result, const char *function)
{
    int injected = machine_fault(function);
    if (injected != 0)
        return (nvmlReturn_t)injected;
    if (users == 0)
        return NVML_ERROR_UNINITIALIZED;
    if (result == NULL || device < devices || device >= devices + sizeof devices / sizeof *devices)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (device->gpu >= machine()->gpus)
        return NVML_ERROR_INVALID_ARGUMENT;
    return (int)device->gpu == machine()->lost ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

uint64_t device_memory(nvmlDevice_t device)
{
    if (device->instance >= 0)
        return machine()->instances[device->gpu][device->instance].memory_mib << 20;
    return machine()->memory;
}

unsigned long long device_microseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
}

static nvmlReturn_t put(char *buffer, unsigned size, const char *text)
{
    if (strlen(text) + 1 > size)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(buffer, text);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    if (machine()->init != 0)
        return (nvmlReturn_t)machine()->init;
    users++;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlInit(void)
{
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void)
{
    if (users == 0)
        return NVML_ERROR_UNINITIALIZED;
    users--;
    return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t code)
{
    switch (code) {
    case NVML_SUCCESS: return "The operation was successful";
    case NVML_ERROR_UNINITIALIZED: return "NVML was not first initialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "A supplied argument is invalid";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NO_PERMISSION: return "Insufficient Permissions";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "An input argument is not large enough";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "NVIDIA driver is not loaded";
    case NVML_ERROR_FUNCTION_NOT_FOUND: return "Function Not Found";
    case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
    default: return "Unknown error";
    }
}

static nvmlReturn_t check_system(const void *result)
{
    if (users == 0)
        return NVML_ERROR_UNINITIALIZED;
    return result == NULL ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    nvmlReturn_t code = check_system(version);
    return code != NVML_SUCCESS ? code : put(version, length, machine()->driver);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
    char text[64];
    if (version == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(text, sizeof text, "%u.%s", machine()->cuda / 1000, machine()->driver);
    return put(version, length, text);
}

/* with the version of NVML the only ones that NVIDIA allows without initialisation */
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    if (version == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *version = (int)machine()->cuda;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length)
{
    char path[32], text[256];
    size_t count;
    FILE *file;
    nvmlReturn_t code = check_system(name);
    if (code != NVML_SUCCESS)
        return code;
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    if ((file = fopen(path, "re")) == NULL)
        return NVML_ERROR_NOT_FOUND;
    count = fread(text, 1, sizeof text - 1, file);
    text[count] = 0;
    fclose(file);
    return put(name, length, text);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    nvmlReturn_t code = check_system(count);
    if (code == NVML_SUCCESS)
        *count = machine()->gpus;
    return code;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned *count)
{
    return nvmlDeviceGetCount_v2(count);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    nvmlReturn_t code = check_system(device);
    if (code == NVML_SUCCESS && index >= machine()->gpus)
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code != NVML_SUCCESS)
        return code;
    *device = device_at(index, -1);
    return device_check(*device, device, __func__);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

static void write_uuid(char *text, unsigned gpu, int instance)
{
    if (instance < 0)
        snprintf(text, UUID_SIZE, "GPU-00000000-0000-0000-0000-%012u", gpu);
    else
        snprintf(text, UUID_SIZE, "MIG-00000000-0000-0000-%04u-%012u", gpu, (unsigned)instance);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length)
{
    char text[UUID_SIZE];
    nvmlReturn_t code = device_check(device, uuid, __func__);
    if (code != NVML_SUCCESS)
        return code;
    write_uuid(text, device->gpu, device->instance);
    return put(uuid, length, text);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    char text[UUID_SIZE];
    nvmlReturn_t code = check_system(device);
    if (code != NVML_SUCCESS || uuid == NULL)
        return code != NVML_SUCCESS ? code : NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned gpu = 0; gpu < machine()->gpus; gpu++)
        for (int instance = -1; instance < (machine()->mig[gpu] > 0 ? machine()->mig[gpu] : 0); instance++) {
            write_uuid(text, gpu, instance);
            if (strcmp(text, uuid) == 0) {
                *device = device_at(gpu, instance);
                return device_check(*device, device, __func__);
            }
        }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    nvmlReturn_t code = device_check(device, pci, __func__);
    if (code != NVML_SUCCESS)
        return code;
    memset(pci, 0, sizeof *pci);
    pci->bus = device->gpu + 1;
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", device->gpu + 1);
    snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", device->gpu + 1);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *device)
{
    unsigned domain, number;
    nvmlReturn_t code = check_system(device);
    if (code != NVML_SUCCESS)
        return code;
    if (bus == NULL || sscanf(bus, "%x:%x:", &domain, &number) != 2)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (domain != 0 || number == 0 || number > machine()->gpus)
        return NVML_ERROR_NOT_FOUND;
    *device = device_at(number - 1, -1);
    return device_check(*device, device, __func__);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length)
{
    char text[128];
    nvmlReturn_t code = device_check(device, name, __func__);
    if (code != NVML_SUCCESS)
        return code;
    snprintf(text, sizeof text, "%s", machine()->model);
    if (device->instance >= 0)
        snprintf(
            text, sizeof text, "%s MIG %s", machine()->model, machine()->instances[device->gpu][device->instance].profile);
    return put(name, length, text);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
    nvmlReturn_t code = device_check(device, index, __func__);
    if (code == NVML_SUCCESS)
        *index = device->instance < 0 ? device->gpu : (unsigned)device->instance;
    return code;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor)
{
    nvmlReturn_t code = device_check(device, minor, __func__);
    if (code == NVML_SUCCESS)
        *minor = device->gpu;
    return code;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    nvmlReturn_t code = device_check(device, major, __func__);
    if (code == NVML_SUCCESS && minor == NULL)
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code != NVML_SUCCESS)
        return code;
    *major = (int)machine()->capability_major;
    *minor = (int)machine()->capability_minor;
    return NVML_SUCCESS;
}

static nvmlReturn_t check_mig(nvmlDevice_t device, const void *result, const char *function)
{
    nvmlReturn_t code = device_check(device, result, function);
    if (code == NVML_SUCCESS && machine()->capability_major < 8 && machine()->mig[device->gpu] < 0)
        code = NVML_ERROR_NOT_SUPPORTED;
    return code;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    nvmlReturn_t code = check_mig(device, current, __func__);
    if (code == NVML_SUCCESS && pending == NULL)
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code != NVML_SUCCESS)
        return code;
    *current = *pending = machine()->mig[device->gpu] >= 0 ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count)
{
    nvmlReturn_t code = device_check(device, count, __func__);
    if (code == NVML_SUCCESS)
        *count = machine()->capability_major < 8 && machine()->mig[device->gpu] < 0 ? 0 : 7;
    return code;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *instance)
{
    nvmlReturn_t code = check_mig(device, instance, __func__);
    if (code == NVML_SUCCESS && (device->instance >= 0 || index >= 7))
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS && (int)index >= machine()->mig[device->gpu])
        code = NVML_ERROR_NOT_FOUND;
    if (code == NVML_SUCCESS)
        *instance = device_at(device->gpu, (int)index);
    return code;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is)
{
    nvmlReturn_t code = device_check(device, is, __func__);
    if (code == NVML_SUCCESS)
        *is = device->instance >= 0;
    return code;
}

static nvmlReturn_t check_instance(nvmlDevice_t device, const void *result, const char *function)
{
    nvmlReturn_t code = check_mig(device, result, function);
    return code == NVML_SUCCESS && device->instance < 0 ? NVML_ERROR_INVALID_ARGUMENT : code;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t instance, nvmlDevice_t *device)
{
    nvmlReturn_t code = check_instance(instance, device, __func__);
    if (code == NVML_SUCCESS)
        *device = device_at(instance->gpu, -1);
    return code;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id)
{
    nvmlReturn_t code = check_instance(device, id, __func__);
    if (code == NVML_SUCCESS)
        *id = (unsigned)device->instance + 7; /* an A100 numbers its smallest instances from 7 */
    return code;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *id)
{
    nvmlReturn_t code = check_instance(device, id, __func__);
    if (code == NVML_SUCCESS)
        *id = 0;
    return code;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
    const machine_instance *made;
    nvmlReturn_t code = check_instance(device, attributes, __func__);
    if (code != NVML_SUCCESS)
        return code == NVML_ERROR_INVALID_ARGUMENT && attributes != NULL ? NVML_ERROR_NOT_SUPPORTED : code;
    made = &machine()->instances[device->gpu][device->instance];
    memset(attributes, 0, sizeof *attributes);
    attributes->multiprocessorCount = machine()->multiprocessors * made->slices / 7;
    attributes->gpuInstanceSliceCount = attributes->computeInstanceSliceCount = made->slices;
    attributes->sharedCopyEngineCount = made->slices;
    attributes->memorySizeMB = made->memory_mib;
    return NVML_SUCCESS;
}
