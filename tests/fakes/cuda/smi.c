/* Shows GPUs as nvidia-smi does: "index total used free" in MiB for each, by NVML that is found when it runs. */
#include <dlfcn.h>
#include <stdio.h>

typedef struct {
    unsigned long long total, free, used;
} memory;

int main(void)
{
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    int (*init)(void) = nvml ? (int (*)(void))dlsym(nvml, "nvmlInit_v2") : NULL;
    int (*count)(unsigned *);
    int (*handle)(unsigned, void **);
    int (*info)(void *, memory *);
    unsigned gpus = 0;
    if (init == NULL || init() != 0)
        return 1;
    count = (int (*)(unsigned *))dlsym(nvml, "nvmlDeviceGetCount_v2");
    handle = (int (*)(unsigned, void **))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
    info = (int (*)(void *, memory *))dlsym(nvml, "nvmlDeviceGetMemoryInfo");
    if (count(&gpus) != 0)
        return 1;
    for (unsigned index = 0; index < gpus; index++) {
        void *gpu;
        memory found;
        if (handle(index, &gpu) != 0 || info(gpu, &found) != 0)
            return 1;
        printf("%u %llu %llu %llu\n", index, found.total >> 20, found.used >> 20, found.free >> 20);
    }
    return 0;
}
