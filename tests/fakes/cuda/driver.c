/* libcuda.so.1 of the fake machine: start, devices and the ways to its functions. */
#define _GNU_SOURCE
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;

static int started;
static int devices;
static unsigned gpus[DRIVER_GPUS];

static int find_uuid(const char *word)
{
    char text[64];
    for (unsigned gpu = 0; gpu < machine()->gpus; gpu++) {
        snprintf(text, sizeof text, "GPU-00000000-0000-0000-0000-%012u", gpu);
        if (strncmp(text, word, strlen(word)) == 0)
            return (int)gpu;
    }
    return -1;
}

/* A program has one instance of a GPU at most. */
static int find_instance(const char *word)
{
    unsigned gpu, instance;
    return sscanf(word, "MIG-00000000-0000-0000-%4u-%12u", &gpu, &instance) == 2 ? machine_instance_number(gpu, instance) : -1;
}

static void read_visible(void)
{
    const char *given = getenv("CUDA_VISIBLE_DEVICES");
    char *text, *place = NULL;
    devices = 0;
    if (given == NULL) {
        for (; devices < (int)machine()->gpus && devices < DRIVER_GPUS; devices++)
            gpus[devices] = (unsigned)devices;
        return;
    }
    if (strncmp(given, "MIG-", 4) == 0) {
        int found = find_instance(given);
        devices = found >= 0;
        gpus[0] = (unsigned)found;
        return;
    }
    text = strdup(given);
    for (char *word = strtok_r(text, ",", &place); word && devices < DRIVER_GPUS; word = strtok_r(NULL, ",", &place)) {
        int gpu = strncmp(word, "GPU-", 4) == 0 ? find_uuid(word) : atoi(word);
        if (gpu < 0 || gpu >= (int)machine()->gpus)
            break; /* as CUDA does: what follows an unknown device is not visible */
        gpus[devices++] = (unsigned)gpu;
    }
    free(text);
}

CUresult cuInit(unsigned Flags)
{
    FAULT();
    if (Flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver_lock);
    if (!started)
        read_visible();
    started = devices > 0;
    pthread_mutex_unlock(&driver_lock);
    return started ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult driver_ready(void)
{
    return started ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

int driver_devices(void)
{
    return devices;
}

unsigned driver_gpu(int device)
{
    return gpus[device];
}

static CUresult check(int device, const void *result)
{
    if (!started)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (result == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return device < 0 || device >= devices ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *driverVersion)
{
    FAULT();
    if (driverVersion == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *driverVersion = (int)machine()->cuda;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    FAULT();
    if (!started)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *count = devices;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    CUresult code;
    FAULT();
    code = check(ordinal, device);
    if (code == CUDA_SUCCESS)
        *device = ordinal;
    return code;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
    CUresult code;
    FAULT();
    code = check(dev, name);
    if (code == CUDA_SUCCESS)
        snprintf(name, (size_t)len, "%s", machine()->model);
    return code;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
    char text[16];
    CUresult code;
    FAULT();
    code = check(dev, uuid);
    if (code != CUDA_SUCCESS)
        return code;
    memset(uuid, 0, sizeof *uuid);
    snprintf(text, sizeof text, "%012u", gpus[dev]);
    for (int byte = 0; byte < 6; byte++) {
        unsigned value;
        sscanf(text + (size_t)2 * (size_t)byte, "%2x", &value);
        uuid->bytes[10 + byte] = (char)value;
    }
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
    return cuDeviceGetUuid_v2(uuid, dev);
}

CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
    CUresult code;
    FAULT();
    code = check(dev, pciBusId);
    if (code == CUDA_SUCCESS)
        snprintf(pciBusId, (size_t)len, "0000:%02X:00.0", gpus[dev] + 1);
    return code;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
    unsigned domain, bus;
    if (!started)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (dev == NULL || pciBusId == NULL || sscanf(pciBusId, "%x:%x:", &domain, &bus) != 2)
        return CUDA_ERROR_INVALID_VALUE;
    for (int device = 0; device < devices; device++)
        if (gpus[device] + 1 == bus) {
            *dev = device;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    CUresult code;
    FAULT();
    code = check(dev, bytes);
    if (code == CUDA_SUCCESS)
        *bytes = machine_capacity(driver_gpu(dev));
    return code;
}

/* the 32-bit form of CUDA 2 */
CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice dev)
{
    CUresult code = check(dev, bytes);
    if (code == CUDA_SUCCESS)
        *bytes = machine_capacity(driver_gpu(dev)) > UINT32_MAX ? UINT32_MAX : (unsigned)machine_capacity(driver_gpu(dev));
    return code;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
    CUresult code = check(dev, major);
    if (code != CUDA_SUCCESS)
        return code;
    *major = (int)machine()->capability_major;
    *minor = (int)machine()->capability_minor;
    return CUDA_SUCCESS;
}

static int attribute(CUdevice_attribute which, int device)
{
    switch (which) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return (int)machine()->capability_major;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return (int)machine()->capability_minor;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return (int)machine()->multiprocessors;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: return 2048;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: return (int)gpus[device] + 1;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X: return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: return INT32_MAX;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y: return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: return 65535;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT: return 32;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT: return 512;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: return 1;
    case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES: return CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    default: return 0;
    }
}

CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
    CUresult code;
    FAULT();
    code = check(dev, pi);
    if (code == CUDA_SUCCESS && (attrib <= 0 || attrib >= CU_DEVICE_ATTRIBUTE_MAX))
        code = CUDA_ERROR_INVALID_VALUE;
    if (code == CUDA_SUCCESS)
        *pi = attribute(attrib, dev);
    return code;
}

CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
    CUresult code = check(dev, canAccessPeer);
    if (code == CUDA_SUCCESS)
        code = check(peerDev, canAccessPeer);
    if (code == CUDA_SUCCESS)
        *canAccessPeer = dev != peerDev;
    return code;
}

static const char *error_name(CUresult error)
{
    switch (error) {
    case CUDA_SUCCESS: return "CUDA_SUCCESS";
    case CUDA_ERROR_INVALID_VALUE: return "CUDA_ERROR_INVALID_VALUE";
    case CUDA_ERROR_OUT_OF_MEMORY: return "CUDA_ERROR_OUT_OF_MEMORY";
    case CUDA_ERROR_NOT_INITIALIZED: return "CUDA_ERROR_NOT_INITIALIZED";
    case CUDA_ERROR_NO_DEVICE: return "CUDA_ERROR_NO_DEVICE";
    case CUDA_ERROR_INVALID_DEVICE: return "CUDA_ERROR_INVALID_DEVICE";
    case CUDA_ERROR_INVALID_CONTEXT: return "CUDA_ERROR_INVALID_CONTEXT";
    case CUDA_ERROR_OPERATING_SYSTEM: return "CUDA_ERROR_OPERATING_SYSTEM";
    case CUDA_ERROR_INVALID_HANDLE: return "CUDA_ERROR_INVALID_HANDLE";
    case CUDA_ERROR_NOT_SUPPORTED: return "CUDA_ERROR_NOT_SUPPORTED";
    default: return "CUDA_ERROR_UNKNOWN";
    }
}

CUresult cuGetErrorName(CUresult error, const char **pStr)
{
    *pStr = error_name(error);
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **pStr)
{
    *pStr = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : error_name(error);
    return CUDA_SUCCESS;
}

/* The newest form that is not newer than the caller: per-thread forms are looked for only where they are asked for, and
 * stand before the others even where an other is newer. */
static const driver_entry *newest(const char *symbol, int version, int per_thread, int *known)
{
    const driver_entry *best = NULL;
    for (const driver_entry *each = driver_entries; each->symbol != NULL; each++) {
        if (strcmp(each->symbol, symbol) != 0 || each->per_thread != per_thread)
            continue;
        *known = 1;
        if (each->version <= version && (best == NULL || each->version > best->version))
            best = each;
    }
    return best;
}

/* Writes a query into the file FAKE_GPU_QUERIES. */
static void record(const char *symbol, int version, cuuint64_t flags)
{
    const char *path = getenv("FAKE_GPU_QUERIES");
    FILE *file = path ? fopen(path, "ae") : NULL;
    if (file == NULL)
        return;
    fprintf(file, "%s,%d,0x%llx\n", symbol, version, (unsigned long long)flags);
    fclose(file);
}

CUresult cuGetProcAddress_v2(
    const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags, CUdriverProcAddressQueryResult *symbolStatus)
{
    const driver_entry *found = NULL;
    int known = 0;
    record(symbol, cudaVersion, flags);
    if (symbol == NULL || pfn == NULL || cudaVersion > (int)machine()->cuda || flags > 2)
        return CUDA_ERROR_INVALID_VALUE;
    if (flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
        found = newest(symbol, cudaVersion, 1, &known);
    if (found == NULL)
        found = newest(symbol, cudaVersion, 0, &known);
    *pfn = found ? found->function : NULL;
    if (symbolStatus != NULL) {
        *symbolStatus = found   ? CU_GET_PROC_ADDRESS_SUCCESS
                        : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    return CUDA_SUCCESS;
}

/* the form of CUDA 11.3, which has no place for the result of the query */
CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
    CUdriverProcAddressQueryResult result;
    CUresult code = cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, &result);
    return code == CUDA_SUCCESS && result != CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_ERROR_NOT_FOUND : code;
}

/* There are no private tables: the CUDA runtime makes its queries, asks for them and stops. */
CUresult cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
    (void)ppExportTable, (void)pExportTableId;
    return CUDA_ERROR_INVALID_VALUE;
}
