/* The health of the fake machine's GPUs, as NVML's documentation says of each call.
 *
 * FAKE_GPU_HEALTH is a file that is read at each call: lines "gpu key value", the keys being those below. A GPU without
 * a line for a key has no such sensor, counter or link: not supported. Instances of a GPU have none of their own.
 */
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include "nvml_devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int told(unsigned gpu, const char *key, long long *value)
{
    const char *path = getenv("FAKE_GPU_HEALTH");
    FILE *file = path ? fopen(path, "re") : NULL;
    char line[128], word[64];
    unsigned on;
    long long number;
    int found = 0;
    while (file != NULL && fgets(line, sizeof line, file))
        if (sscanf(line, "%u %63s %lld", &on, word, &number) == 3 && on == gpu && strcmp(word, key) == 0) {
            *value = number;
            found = 1;
        }
    if (file != NULL)
        fclose(file);
    return found;
}

static nvmlReturn_t ask(nvmlDevice_t device, const void *result, const char *key, long long *value, const char *function)
{
    nvmlReturn_t code = device_check(device, result, function);
    if (code != NVML_SUCCESS)
        return code;
    if (told(device->gpu, "lost", value) && *value)
        return NVML_ERROR_GPU_IS_LOST;
    if (device->instance >= 0)
        return NVML_ERROR_NOT_SUPPORTED;
    return told(device->gpu, key, value) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned *temperature)
{
    long long value = 0;
    nvmlReturn_t code = ask(device, temperature, "temperature", &value, __func__);
    if (code == NVML_SUCCESS && sensor != NVML_TEMPERATURE_GPU)
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS)
        *temperature = (unsigned)value;
    return code;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(
    nvmlDevice_t device, nvmlMemoryErrorType_t kind, nvmlEccCounterType_t counter, unsigned long long *count)
{
    long long value = 0;
    const char *key = kind == NVML_MEMORY_ERROR_TYPE_CORRECTED ? "corrected" : "uncorrected";
    nvmlReturn_t code = ask(device, count, key, &value, __func__);
    if (code == NVML_SUCCESS && (kind >= NVML_MEMORY_ERROR_TYPE_COUNT || counter >= NVML_ECC_COUNTER_TYPE_COUNT))
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS)
        *count = (unsigned long long)value;
    return code;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(
    nvmlDevice_t device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed)
{
    long long value = 0;
    nvmlReturn_t code = ask(device, corrected, "remapped", &value, __func__);
    if (code == NVML_SUCCESS && (uncorrected == NULL || pending == NULL || failed == NULL))
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code != NVML_SUCCESS)
        return code;
    *corrected = 0;
    *uncorrected = (unsigned)value;
    *pending = told(device->gpu, "pending", &value) && value;
    *failed = told(device->gpu, "failed", &value) && value;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons)
{
    long long value = 0;
    nvmlReturn_t code = ask(device, reasons, "slowed", &value, __func__);
    if (code == NVML_SUCCESS)
        *reasons = (unsigned long long)value;
    return code;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, nvmlEnableState_t *active)
{
    long long up = 0, all = 0;
    nvmlReturn_t code = ask(device, active, "links", &up, __func__);
    if (code == NVML_SUCCESS && (!told(device->gpu, "all_links", &all) || link >= NVML_NVLINK_MAX_LINKS))
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS && link >= (unsigned)all)
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS)
        *active = link < (unsigned)up ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return code;
}
