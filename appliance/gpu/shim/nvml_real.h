/* NVML's own functions. */
#ifndef PSG_NVML_REAL_H
#define PSG_NVML_REAL_H

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#include "shim.h"

/* What shows a process its share in place of the GPU. */
#define PSG_NVML_VIEWS(VIEW)                         \
    VIEW(nvmlDeviceGetMemoryInfo)                    \
    VIEW(nvmlDeviceGetMemoryInfo_v2)                 \
    VIEW(nvmlDeviceGetComputeRunningProcesses)       \
    VIEW(nvmlDeviceGetComputeRunningProcesses_v2)    \
    VIEW(nvmlDeviceGetComputeRunningProcesses_v3)    \
    VIEW(nvmlDeviceGetGraphicsRunningProcesses)      \
    VIEW(nvmlDeviceGetGraphicsRunningProcesses_v2)   \
    VIEW(nvmlDeviceGetGraphicsRunningProcesses_v3)   \
    VIEW(nvmlDeviceGetMPSComputeRunningProcesses)    \
    VIEW(nvmlDeviceGetMPSComputeRunningProcesses_v2) \
    VIEW(nvmlDeviceGetMPSComputeRunningProcesses_v3) \
    VIEW(nvmlDeviceGetRunningProcessDetailList)      \
    VIEW(nvmlDeviceGetUtilizationRates)              \
    VIEW(nvmlDeviceGetProcessUtilization)            \
    VIEW(nvmlDeviceGetProcessesUtilizationInfo)

/* Functions that are called here and are not shown in another way. */
#define PSG_NVML_USED(USE) \
    USE(nvmlInit_v2)       \
    USE(nvmlDeviceGetUUID) \
    USE(nvmlDeviceGetHandleByUUID)

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t, unsigned int *, nvmlProcessInfo_v1_t *);
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t, unsigned int *, nvmlProcessInfo_v2_t *);
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t, unsigned int *, nvmlProcessInfo_v1_t *);
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t, unsigned int *, nvmlProcessInfo_v2_t *);
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t, unsigned int *, nvmlProcessInfo_v1_t *);
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t, unsigned int *, nvmlProcessInfo_v2_t *);

struct psg_nvml {
#define MEMBER(symbol) __typeof__(&symbol) symbol;
    PSG_NVML_VIEWS(MEMBER)
    PSG_NVML_USED(MEMBER)
#undef MEMBER
};

/* The real functions; a null pointer where this NVML does not have one, or where there is none. */
extern struct psg_nvml psg_nvml;

/* The library where it is loaded, or can be loaded where `load` is true, and psg_nvml filled; null else. */
void *psg_nvml_library(bool load);

/* True once psg_nvml is filled. */
bool psg_nvml_load(void);

#define REAL(symbol, ...) \
    (psg_nvml_load() && psg_nvml.symbol ? psg_nvml.symbol(__VA_ARGS__) : NVML_ERROR_FUNCTION_NOT_FOUND)

#endif
