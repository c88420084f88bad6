/* Devices: which GPU of the limits each one is, and which one is current. */
#include <stdatomic.h>
#include <stdio.h>

#include "device.h"
#include "driver.h"
#include "fork.h"
#include "limits.h"
#include "table.h"

#define DEVICES 64

/* Number plus two of the limit of a device; 0: not asked yet, 1: no limit. */
static atomic_int gpus[DEVICES];

/* How many green contexts there are. */
static atomic_int greens;

static void after_fork_in_child(void)
{
    atomic_store(&greens, 0);
}

AT_FORK(.in_child = after_fork_in_child);

void psg_count_greens(int change)
{
    atomic_fetch_add(&greens, change);
}

static bool ask_gpu(CUdevice device, int *gpu)
{
    CUuuid uuid;
    if (REAL(cuDeviceGetUuid_v2, &uuid, device) != CUDA_SUCCESS && REAL(cuDeviceGetUuid, &uuid, device) != CUDA_SUCCESS)
        return false;
    char text[PSG_UUID] = "GPU-";
    int at = 4;
    for (int i = 0; i < 16; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                       (unsigned char)uuid.bytes[i]);
    *gpu = psg_gpu_of_uuid(text);
    return true;
}

int psg_gpu_of_device(int device)
{
    if (device < 0 || device >= DEVICES)
        return -1;
    int known = atomic_load_explicit(&gpus[device], memory_order_acquire);
    if (known == 0) {
        int gpu;
        /* Before cuInit there is no answer, and none to keep. */
        if (!ask_gpu(device, &gpu))
            return -1;
        known = gpu + 2;
        atomic_store_explicit(&gpus[device], known, memory_order_release);
    }
    return known - 2;
}

int psg_device_of_gpu(int gpu)
{
    int devices = 0;
    REAL(cuDeviceGetCount, &devices);
    for (int device = 0; device < devices && device < DEVICES; device++)
        if (psg_gpu_of_device(device) == gpu)
            return device;
    return -1;
}

/* What is allocated in a green context belongs to the primary one that it is a part of. */
static uint64_t owner_of(CUcontext current)
{
    struct psg_entry name, green;
    uint64_t context = (uint64_t)(uintptr_t)current;
    if (atomic_load_explicit(&greens, memory_order_relaxed) && psg_table_get(PSG_GREEN_NAME, context, &name) &&
        psg_table_get(PSG_GREEN, name.owner, &green))
        return green.owner;
    return context;
}

int psg_gpu_here(uint64_t *context)
{
    CUdevice device;
    CUcontext current = NULL;
    if (psg_depth > 0 || !psg_limited() || REAL(cuCtxGetDevice, &device) != CUDA_SUCCESS)
        return -1;
    if (context) {
        REAL(cuCtxGetCurrent, &current);
        *context = owner_of(current);
    }
    return psg_gpu_of_device(device);
}

int psg_gpu_of_memory(CUmemAllocationType type, const CUmemLocation *place)
{
    if (place->type == CU_MEM_LOCATION_TYPE_DEVICE)
        return psg_gpu_of_device(place->id);
    if (place->type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN)
        return psg_gpu_of_device(place->localized.deviceId);
    if (type != CU_MEM_ALLOCATION_TYPE_MANAGED || place->type != CU_MEM_LOCATION_TYPE_NONE)
        return -1;
    CUdevice device = 0;
    REAL(cuCtxGetDevice, &device);
    return psg_gpu_of_device(device);
}
