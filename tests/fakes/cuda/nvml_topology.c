/* How the fake machine's GPUs hang together and which cores are near them. */
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include "nvml_devices.h"

#include <string.h>

#define WORD_BITS (8 * sizeof(unsigned long))

static unsigned part(nvmlDevice_t device, int each)
{
    return device->gpu / (unsigned)(each > 0 ? each : 1);
}

static nvmlReturn_t check_pair(nvmlDevice_t one, nvmlDevice_t other, const void *result, const char *function)
{
    nvmlReturn_t code = device_check(one, result, function);
    if (code == NVML_SUCCESS)
        code = device_check(other, result, function);
    if (code == NVML_SUCCESS && one == other)
        code = NVML_ERROR_INVALID_ARGUMENT;
    return code == NVML_SUCCESS && machine()->hidden ? NVML_ERROR_NOT_SUPPORTED : code;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(
    nvmlDevice_t one, nvmlDevice_t other, nvmlGpuP2PCapsIndex_t caps, nvmlGpuP2PStatus_t *status)
{
    int linked = machine()->nvlink;
    nvmlReturn_t code = check_pair(one, other, status, __func__);
    if (code == NVML_SUCCESS && caps >= NVML_P2P_CAPS_INDEX_UNKNOWN)
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code != NVML_SUCCESS)
        return code;
    *status = NVML_P2P_STATUS_NOT_SUPPORTED;
    if (caps == NVML_P2P_CAPS_INDEX_NVLINK && linked > 1 && part(one, linked) == part(other, linked))
        *status = NVML_P2P_STATUS_OK;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other, nvmlGpuTopologyLevel_t *level)
{
    int numa = machine()->numa;
    nvmlReturn_t code = check_pair(one, other, level, __func__);
    if (code == NVML_SUCCESS)
        *level = part(one, numa) == part(other, numa) ? NVML_TOPOLOGY_NODE : NVML_TOPOLOGY_SYSTEM;
    return code;
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned words, unsigned long *cores)
{
    unsigned each = (unsigned)machine()->cores;
    nvmlReturn_t code = device_check(device, cores, __func__);
    if (code == NVML_SUCCESS && words == 0)
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS && machine()->hidden)
        code = NVML_ERROR_NOT_SUPPORTED;
    if (code != NVML_SUCCESS)
        return code;
    memset(cores, 0, words * sizeof *cores);
    for (unsigned core = part(device, machine()->numa) * each, last = core + each; core < last; core++)
        if (core / WORD_BITS < words)
            cores[core / WORD_BITS] |= 1UL << core % WORD_BITS;
    return NVML_SUCCESS;
}
