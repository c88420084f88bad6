/* What the client launches. */
#define _GNU_SOURCE
#include "client.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

CUfunction functions[OBJECTS];
static char kernels[OBJECTS][64];

/* For a real driver; the fake one looks at names alone. */
static const char image[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                            ".visible .entry busy_300us()\n{\n"
                            "    .reg .pred %more;\n    .reg .b32 %left;\n    mov.u32 %left, 100000;\n"
                            "again:\n    sub.u32 %left, %left, 1;\n    setp.ne.u32 %more, %left, 0;\n    @%more bra again;\n"
                            "    ret;\n}\n";

static CUresult make_function(number name, const char *kernel)
{
    CUmodule module;
    CUresult code = p_cuModuleLoadData(&module, image);
    if (kernel != kernels[name])
        snprintf(kernels[name], sizeof kernels[name], "%s", kernel);
    return code != CUDA_SUCCESS ? code : p_cuModuleGetFunction(&functions[name], module, kernel);
}

static CUresult launch(number function, CUstream stream)
{
    return p_cuLaunchKernel(functions[function], 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

static CUresult launch_ex(number function)
{
    CUlaunchConfig as = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
    return p_cuLaunchKernelEx(&as, functions[function], NULL, NULL);
}

/* A function that was never launched before, on a stream. */
static CUresult launch_anew(number function)
{
    CUresult code = make_function(function, kernels[function]);
    return code != CUDA_SUCCESS ? code : launch(function, next_stream());
}

/* With a large grid, behind some with a small one. */
static CUresult launch_with_grids(number function)
{
    CUresult code = CUDA_SUCCESS;
    for (unsigned each = 0; each <= SMALL_GRIDS && code == CUDA_SUCCESS; each++)
        code = p_cuLaunchKernel(
            functions[function], each < SMALL_GRIDS ? 1 : LARGE_GRID, 1, 1, 1, 1, 1, 0, next_stream(), NULL, NULL);
    return code;
}

number now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (number)at.tv_sec * 1000000000 + (number)at.tv_nsec;
}

CUresult launch_as(number function, number how)
{
    switch (how) {
    case 1: return launch_ex(function);
    case 2: return p_cuLaunchCooperativeKernel(functions[function], 1, 1, 1, 1, 1, 1, 0, NULL, NULL);
    case 3: return p_cuGraphLaunch(execs[function], NULL);
    case 4: return launch(function, next_stream());
    case 5: return launch(function, CU_STREAM_LEGACY);
    case 6: return launch_anew(function);
    case 7: return launch_with_grids(function);
    default: return launch(function, NULL);
    }
}

/* Launches for some ms, `ahead` kernels or graphs between synchronisations; tells how many there were. */
static CUresult spin(number function, number milliseconds, number ahead, number how)
{
    number end = now() + milliseconds * 1000000, count = 0;
    CUresult code = CUDA_SUCCESS;
    while (code == CUDA_SUCCESS && now() < end) {
        for (number each = 0; each < ahead && code == CUDA_SUCCESS; each++, count++)
            code = launch_as(function, how);
        if (code == CUDA_SUCCESS)
            code = p_cuCtxSynchronize();
    }
    tell(count);
    return code;
}

/* The mean cost in ns of launches, or of pairs of an allocation and its release. */
static CUresult measure(number count, int launches)
{
    CUresult code = CUDA_SUCCESS;
    CUdeviceptr block;
    number begin = now();
    for (number each = 0; each < count && code == CUDA_SUCCESS; each++) {
        code = launches ? launch(0, NULL) : p_cuMemAlloc(&block, 4096);
        if (code == CUDA_SUCCESS && !launches)
            code = p_cuMemFree(block);
    }
    tell((now() - begin) / count);
    return code;
}

CUresult work_command(const char *word, const number *n, const char *text)
{
    if (same(word, "kernel"))
        return make_function(n[0], text);
    if (same(word, "launch"))
        return launch_as(n[0], n[1]);
    if (same(word, "launchon"))
        return launch(n[0], stream_named(n[1]));
    if (same(word, "spin"))
        return spin(n[0], n[1], n[2], n[3]);
    if (same(word, "part"))
        return add_part(n[0], n[1], n[2]);
    if (same(word, "steps"))
        return steps(n[0], n[1], n[2]);
    if (same(word, "churn")) {
        number succeeded = 0, refused = 0;
        CUresult code = churn(n[0], n[1], n[2], &succeeded, &refused);
        return tell(succeeded), tell(refused), code;
    }
    if (same(word, "launchcost"))
        return measure(n[0], 1);
    if (same(word, "alloccost"))
        return measure(n[0], 0);
    if (same(word, "stop"))
        return raise(SIGSTOP) == 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
    return CUDA_ERROR_UNKNOWN;
}
