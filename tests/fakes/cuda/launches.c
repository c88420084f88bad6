/* Launches of the fake driver: how long a kernel takes, and the calls that queue it. */
#define _GNU_SOURCE
#include "driver.h"

#include <string.h>

#define BLOCKS_AT_ONCE 16 /* of a multiprocessor */

uint64_t driver_duration(CUfunction function, uint64_t x, uint64_t y, uint64_t z)
{
    uint64_t blocks = x * y * z, at_once = machine()->multiprocessors * (uint64_t)BLOCKS_AT_ONCE;
    return function->duration * (blocks > at_once ? (blocks + at_once - 1) / at_once : 1);
}

static CUresult launch(CUfunction function, uint64_t x, uint64_t y, uint64_t z, CUstream stream)
{
    if (function == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (strcmp(function->name, "wrong_address") == 0)
        driver_wrong_address();
    return driver_queue(stream, driver_duration(function, x, y, z));
}

CUresult cuLaunchKernel(CUfunction f, unsigned gridDimX, unsigned gridDimY, unsigned gridDimZ, unsigned blockDimX,
    unsigned blockDimY, unsigned blockDimZ, unsigned sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
{
    FAULT();
    (void)blockDimX, (void)blockDimY, (void)blockDimZ;
    (void)sharedMemBytes, (void)kernelParams, (void)extra;
    return launch(f, gridDimX, gridDimY, gridDimZ, hStream);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
    FAULT();
    (void)kernelParams, (void)extra;
    return config == NULL ? CUDA_ERROR_INVALID_VALUE
                          : launch(f, config->gridDimX, config->gridDimY, config->gridDimZ, config->hStream);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gridDimX, unsigned gridDimY, unsigned gridDimZ,
    unsigned blockDimX, unsigned blockDimY, unsigned blockDimZ, unsigned sharedMemBytes, CUstream hStream,
    void **kernelParams)
{
    FAULT();
    (void)blockDimX, (void)blockDimY, (void)blockDimZ;
    (void)sharedMemBytes, (void)kernelParams;
    return launch(f, gridDimX, gridDimY, gridDimZ, hStream);
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launchParamsList, unsigned numDevices, unsigned flags)
{
    FAULT();
    (void)flags;
    for (unsigned index = 0; index < numDevices; index++) {
        const CUDA_LAUNCH_PARAMS *one = &launchParamsList[index];
        CUresult code = launch(one->function, one->gridDimX, one->gridDimY, one->gridDimZ, one->hStream);
        if (code != CUDA_SUCCESS)
            return code;
    }
    return CUDA_SUCCESS;
}

CUresult cuLaunch(CUfunction f)
{
    FAULT();
    return launch(f, 1, 1, 1, NULL);
}

CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height)
{
    FAULT();
    return launch(f, (unsigned)grid_width, (unsigned)grid_height, 1, NULL);
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream)
{
    FAULT();
    return launch(f, (unsigned)grid_width, (unsigned)grid_height, 1, hStream);
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
    FAULT();
    (void)hStream;
    fn(userData);
    return CUDA_SUCCESS;
}
