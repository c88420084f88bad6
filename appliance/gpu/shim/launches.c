/* Every way to launch work: kernels, cooperative ones, graphs. */
#include "compute.h"
#include "driver.h"
#include "graph.h"
#include "limits.h"
#include "record.h"
#include "stream.h"

#define LAUNCHES(symbol, parameters, stream, ...)                    \
    EXPORT CUresult symbol parameters                                \
    {                                                                \
        int gpu = psg_gpu_of_stream(stream);                             \
        if (gpu >= 0)                                                \
            psg_admit(gpu, stream);                                  \
        return REAL(symbol, __VA_ARGS__);                            \
    }

#define KERNEL                                                                                                       \
    (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,       \
     unsigned int block_y, unsigned int block_z, unsigned int shared, CUstream stream, void **arguments, void **extra)
#define KERNEL_ARGUMENTS \
    function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, arguments, extra
#define COOPERATIVE                                                                                                  \
    (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,       \
     unsigned int block_y, unsigned int block_z, unsigned int shared, CUstream stream, void **arguments)
#define COOPERATIVE_ARGUMENTS function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, arguments
#define EXTENDED (const CUlaunchConfig *how, CUfunction function, void **arguments, void **extra)

LAUNCHES(cuLaunchKernel, KERNEL, stream, KERNEL_ARGUMENTS)
LAUNCHES(cuLaunchKernel_ptsz, KERNEL, stream ? stream : CU_STREAM_PER_THREAD, KERNEL_ARGUMENTS)
LAUNCHES(cuLaunchCooperativeKernel, COOPERATIVE, stream, COOPERATIVE_ARGUMENTS)
LAUNCHES(cuLaunchCooperativeKernel_ptsz, COOPERATIVE, stream ? stream : CU_STREAM_PER_THREAD, COOPERATIVE_ARGUMENTS)
LAUNCHES(cuLaunchKernelEx, EXTENDED, how ? how->hStream : NULL, how, function, arguments, extra)
LAUNCHES(cuLaunchKernelEx_ptsz, EXTENDED, how && how->hStream ? how->hStream : CU_STREAM_PER_THREAD, how, function,
         arguments, extra)
LAUNCHES(cuLaunch, (CUfunction function), NULL, function)
LAUNCHES(cuLaunchGrid, (CUfunction function, int width, int height), NULL, function, width, height)
LAUNCHES(cuLaunchGridAsync, (CUfunction function, int width, int height, CUstream stream), stream, function, width, height,
         stream)

EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned int devices, unsigned int flags)
{
    for (unsigned i = 0; psg_limited() && launches && i < devices; i++) {
        int gpu = psg_gpu_of_stream(launches[i].hStream);
        if (gpu >= 0)
            psg_admit(gpu, launches[i].hStream);
    }
    return REAL(cuLaunchCooperativeKernelMultiDevice, launches, devices, flags);
}

#define LAUNCHES_GRAPH(symbol, used_stream)                          \
    EXPORT CUresult symbol(CUgraphExec executable, CUstream stream)  \
    {                                                                \
        int gpu = psg_gpu_of_stream(used_stream);                        \
        struct psg_graph_run run = {.gpu = -1};                      \
        bool runs = !psg_recorded(used_stream);                      \
        if (gpu >= 0 && runs)                                        \
            psg_admit(gpu, used_stream);                             \
        /* Reserved last, for waiting may take long, and others settle meanwhile. */ \
        if (runs && !psg_graph_begin(executable, &run))              \
            return CUDA_ERROR_OUT_OF_MEMORY;                         \
        CUresult result = REAL(symbol, executable, stream);          \
        psg_graph_end(&run, result);                                 \
        return result;                                               \
    }

LAUNCHES_GRAPH(cuGraphLaunch, stream)
LAUNCHES_GRAPH(cuGraphLaunch_ptsz, stream ? stream : CU_STREAM_PER_THREAD)
