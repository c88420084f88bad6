/* Modules of the fake driver: a kernel's name tells how long it runs.
 *
 * "busy_250us", "busy_3ms"; a kernel of any other name runs no time at all. "wrong_address" writes to one.
 */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CUmod_st {
    struct CUfunc_st *functions[16];
    int count;
};

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    FAULT();
    if (driver_context() == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (module == NULL || image == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *module = calloc(1, sizeof **module);
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
    return cuModuleLoadData(module, fatCubin);
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    if (mode == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule hmod)
{
    FAULT();
    for (int index = 0; index < hmod->count; index++)
        free(hmod->functions[index]);
    free(hmod);
    return CUDA_SUCCESS;
}

static uint64_t duration_of(const char *name)
{
    unsigned long long number;
    char unit[3] = "";
    if (sscanf(name, "busy_%llu%2s", &number, unit) != 2)
        return 0;
    return number * (strcmp(unit, "ns") == 0 ? 1 : strcmp(unit, "us") == 0 ? 1000 : strcmp(unit, "ms") == 0 ? 1000000 : 0);
}

CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    struct CUfunc_st *made;
    FAULT();
    if (hfunc == NULL || hmod == NULL || name == NULL || hmod->count == 16)
        return CUDA_ERROR_INVALID_VALUE;
    made = calloc(1, sizeof *made);
    snprintf(made->name, sizeof made->name, "%s", name);
    made->duration = duration_of(name);
    *hfunc = hmod->functions[hmod->count++] = made;
    return CUDA_SUCCESS;
}
