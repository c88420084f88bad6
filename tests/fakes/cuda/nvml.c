/* libnvidia-ml.so.1 of the fake machine: devices, memory, processes and limits, with NVIDIA's codes and rules of use. */
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include "nvml_devices.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SINCE_LIMITS 615

static nvmlReturn_t own_memory(nvmlDevice_t device, nvmlMemory_t *result)
{
    uint64_t used = machine_used(device->gpu);
    result->total = device_memory(device);
    if (device->instance >= 0)
        used = 0;
    result->used = used;
    result->free = result->total - used;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    nvmlReturn_t code = device_check(device, memory, __func__);
    return code != NVML_SUCCESS ? code : own_memory(device, memory);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    nvmlMemory_t plain;
    nvmlReturn_t code = device_check(device, memory, __func__);
    if (code == NVML_SUCCESS && memory->version != nvmlMemory_v2)
        code = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (code != NVML_SUCCESS)
        return code;
    own_memory(device, &plain);
    memory->total = plain.total;
    memory->reserved = 0;
    memory->used = plain.used;
    memory->free = plain.free;
    return NVML_SUCCESS;
}

/* Processes of the fake driver, then those of the file FAKE_GPU_PROCESSES: "gpu pid bytes per-cent" in each line. */
static unsigned processes(unsigned gpu, machine_use *uses)
{
    unsigned found = machine_processes(gpu, uses, PROCESSES_MOST), on, pid, percent = 0;
    unsigned long long bytes;
    const char *path = getenv("FAKE_GPU_PROCESSES");
    FILE *file = path ? fopen(path, "re") : NULL;
    char line[128];
    while (file != NULL && fgets(line, sizeof line, file))
        if (sscanf(line, "%u %u %llu %u", &on, &pid, &bytes, &percent) >= 3 && on == gpu && found < PROCESSES_MOST)
            uses[found++] = (machine_use){(int)pid, bytes, percent};
    if (file != NULL)
        fclose(file);
    return found;
}

static nvmlReturn_t list(nvmlDevice_t device, unsigned *count, void *infos, size_t width, const char *function)
{
    machine_use uses[PROCESSES_MOST];
    unsigned room, found;
    nvmlReturn_t code = device_check(device, count, function);
    if (code == NVML_SUCCESS && *count != 0 && infos == NULL)
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code != NVML_SUCCESS)
        return code;
    room = *count;
    found = device->instance >= 0 ? 0 : processes(device->gpu, uses);
    *count = found;
    if (found > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned index = 0; index < found; index++) {
        nvmlProcessInfo_t info = {
            .pid = (unsigned)uses[index].pid,
            .usedGpuMemory = uses[index].bytes,
            .gpuInstanceId = UINT32_MAX,
            .computeInstanceId = UINT32_MAX,
        };
        memcpy((char *)infos + index * width, &info, width);
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *infoCount, nvmlProcessInfo_v1_t *infos)
{
    return list(device, infoCount, infos, sizeof *infos, __func__);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *infoCount, nvmlProcessInfo_v2_t *infos)
{
    return list(device, infoCount, infos, sizeof *infos, __func__);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *infoCount, nvmlProcessInfo_t *infos)
{
    return list(device, infoCount, infos, sizeof *infos, __func__);
}

static nvmlReturn_t none(nvmlDevice_t device, unsigned *count, const char *function)
{
    nvmlReturn_t code = device_check(device, count, function);
    if (code == NVML_SUCCESS)
        *count = 0;
    return code;
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *infoCount, nvmlProcessInfo_t *infos)
{
    (void)infos;
    return none(device, infoCount, __func__);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *infoCount, nvmlProcessInfo_t *infos)
{
    (void)infos;
    return none(device, infoCount, __func__);
}

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *plist)
{
    machine_use uses[PROCESSES_MOST];
    unsigned room, found;
    nvmlReturn_t code = device_check(device, plist, __func__);
    if (code == NVML_SUCCESS && plist->version != nvmlProcessDetailList_v1)
        code = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (code != NVML_SUCCESS)
        return code;
    room = plist->numProcArrayEntries;
    found = plist->mode == NVML_PROCESS_MODE_COMPUTE ? processes(device->gpu, uses) : 0;
    plist->numProcArrayEntries = found;
    if (found > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned index = 0; index < found; index++)
        plist->procArray[index] = (nvmlProcessDetail_v1_t){
            (unsigned)uses[index].pid, uses[index].bytes, UINT32_MAX, UINT32_MAX, 0};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(
    nvmlDevice_t device, nvmlProcessUtilizationSample_t *utilization, unsigned *count, unsigned long long since)
{
    machine_use uses[PROCESSES_MOST];
    unsigned room, found;
    unsigned long long now = device_microseconds();
    nvmlReturn_t code = device_check(device, count, __func__);
    if (code == NVML_SUCCESS && device->instance >= 0)
        code = NVML_ERROR_NOT_SUPPORTED;
    if (code != NVML_SUCCESS)
        return code;
    room = utilization == NULL ? 0 : *count;
    found = processes(device->gpu, uses);
    if (found == 0 || since >= now)
        return *count = 0, NVML_ERROR_NOT_FOUND;
    *count = found;
    if (found > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned index = 0; index < found; index++)
        utilization[index] = (nvmlProcessUtilizationSample_t){
            .pid = (unsigned)uses[index].pid, .timeStamp = now, .smUtil = uses[index].percent};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *info)
{
    machine_use uses[PROCESSES_MOST];
    unsigned room, found;
    nvmlReturn_t code = device_check(device, info, __func__);
    if (code == NVML_SUCCESS && info->version != nvmlProcessesUtilizationInfo_v1)
        code = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (code != NVML_SUCCESS)
        return code;
    room = info->procUtilArray == NULL ? 0 : info->processSamplesCount;
    found = processes(device->gpu, uses);
    info->processSamplesCount = found;
    if (found > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned index = 0; index < found; index++)
        info->procUtilArray[index] = (nvmlProcessUtilizationInfo_v1_t){
            .pid = (unsigned)uses[index].pid, .timeStamp = device_microseconds(), .smUtil = uses[index].percent};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    machine_use uses[PROCESSES_MOST];
    unsigned found;
    nvmlReturn_t code = device_check(device, utilization, __func__);
    if (code == NVML_SUCCESS && machine()->mig[device->gpu] >= 0)
        code = NVML_ERROR_NOT_SUPPORTED;
    if (code != NVML_SUCCESS)
        return code;
    utilization->gpu = utilization->memory = 0;
    found = processes(device->gpu, uses);
    for (unsigned index = 0; index < found && index < PROCESSES_MOST; index++)
        utilization->gpu += uses[index].percent;
    if (utilization->gpu > 100)
        utilization->gpu = 100;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t device, unsigned *size)
{
    nvmlReturn_t code = device_check(device, size, __func__);
    if (code == NVML_SUCCESS)
        *size = PROCESSES_MOST;
    return code;
}

/* All that work on the GPU, by their numbers on the node. */
nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned *count, unsigned *pids)
{
    machine_use uses[PROCESSES_MOST];
    unsigned found, room;
    nvmlReturn_t code = device_check(device, count, __func__);
    if (code != NVML_SUCCESS)
        return code;
    found = processes(device->gpu, uses);
    room = pids == NULL ? 0 : *count;
    *count = found;
    for (unsigned index = 0; index < found && index < room; index++)
        pids[index] = (unsigned)uses[index].pid;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned *utilization, unsigned *period_us)
{
    nvmlUtilization_t rates;
    nvmlReturn_t code = nvmlDeviceGetUtilizationRates(device, &rates);
    if (code == NVML_SUCCESS)
        *utilization = rates.gpu, *period_us = 1000000;
    return code;
}

/* What a newer NVML has, and no header that anybody has read. */
nvmlReturn_t nvmlDeviceSetGreatNews_v1(void)
{
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceTurnGreatNews(void)
{
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGreatNews(void)
{
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGreatNewsQuery(void)
{
    return NVML_SUCCESS;
}

#ifndef OLD_DRIVER
static nvmlReturn_t check_limits(nvmlDevice_t device, const void *limits, const char *group, const char *function)
{
    int opened;
    nvmlReturn_t code = device_check(device, limits, function);
    if (code != NVML_SUCCESS)
        return code;
    if (machine()->mig[device->gpu] >= 0)
        return NVML_ERROR_NOT_SUPPORTED;
    if (group == NULL || (opened = open(group, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        return NVML_ERROR_OPERATING_SYSTEM;
    close(opened);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits)
{
    nvmlReturn_t code;
    if (machine()->driver_major < SINCE_LIMITS)
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    code = check_limits(device, limits, limits ? limits->nameSpace : NULL, __func__);
    if (code != NVML_SUCCESS)
        return code;
    if (geteuid() != 0)
        return NVML_ERROR_NO_PERMISSION;
    if (limits->softLimit > limits->hardLimit || limits->softLimit > machine()->memory)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (limits->hardLimit > machine()->memory && limits->hardLimit != NVML_DEVICE_MEMORY_LIMIT_MAX)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (machine_limit(device->gpu, limits->nameSpace, limits->softLimit, limits->hardLimit) != 0)
        return NVML_ERROR_UNKNOWN;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits)
{
    uint64_t soft, hard, used;
    nvmlReturn_t code;
    if (machine()->driver_major < SINCE_LIMITS)
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    code = check_limits(device, limits, limits ? limits->nameSpace : NULL, __func__);
    if (code != NVML_SUCCESS)
        return code;
    if (machine_get_limit(device->gpu, limits->nameSpace, &soft, &hard, &used) != 0)
        return NVML_ERROR_NOT_FOUND;
    limits->softLimit = soft;
    limits->hardLimit = hard;
    limits->currentUsed = used;
    return NVML_SUCCESS;
}
#endif
