/* A GPU that falls off the bus, with its instances, while programs use it: FAKE_GPU_HEALTH says so, as it does to NVML, by a
 * line "gpu lost 1". */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>

static int is_lost(const char *path, unsigned gpu)
{
    char line[128];
    unsigned on, value;
    int lost = 0;
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file))
        lost = lost || (sscanf(line, "%u lost %u", &on, &value) == 2 && on == gpu && value != 0);
    if (file != NULL)
        fclose(file);
    return lost;
}

int driver_lost(void)
{
    const char *path = getenv("FAKE_GPU_HEALTH");
    struct CUctx_st *context = path ? driver_context() : NULL;
    return context != NULL && is_lost(path, machine_card(context->gpu)) ? CUDA_ERROR_UNKNOWN : 0;
}
