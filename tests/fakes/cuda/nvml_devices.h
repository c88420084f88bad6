/* What the parts of the fake NVML share: a device is a GPU, or an instance of one. */
#ifndef NVML_DEVICES_H
#define NVML_DEVICES_H

#include "machine.h"

#include <nvml.h>

#define PROCESSES_MOST 512

struct nvmlDevice_st {
    unsigned gpu;
    int instance; /* -1: the GPU itself */
};

/* What a function answers before it does anything: the fault injected into it, else whether it was used rightly. */
nvmlReturn_t device_check(nvmlDevice_t device, const void *result, const char *function);
uint64_t device_memory(nvmlDevice_t device);
unsigned long long device_microseconds(void);

#endif
