/* How much of a GPU's memory is in use, as NVML tells it. */
#include <stdatomic.h>

#include "limits.h"
#include "nvml_real.h"
#include "nvml_usage.h"

bool psg_nvml_used(int gpu, uint64_t *bytes)
{
    nvmlDevice_t device;
    nvmlMemory_t memory;
    /* Initialised once and never shut down: NVML counts, and the program may use it as well. */
    static atomic_int initialised;
    if (atomic_load(&initialised) == 0)
        atomic_store(&initialised, REAL(nvmlInit_v2) == NVML_SUCCESS ? 1 : -1);
    if (atomic_load(&initialised) < 0 ||
        REAL(nvmlDeviceGetHandleByUUID, psg_uuid_of_gpu(gpu), &device) != NVML_SUCCESS ||
        REAL(nvmlDeviceGetMemoryInfo, device, &memory) != NVML_SUCCESS)
        return false;
    *bytes = memory.used;
    return true;
}
