/* Every way to launch work: kernels, cooperative ones, graphs. */
#include "compute.h"
#include "driver.h"
#include "graph.h"
#include "limits.h"
#include "record.h"
#include "stream.h"

/* What is recorded does not run, and the driver must not be asked about its stream. */
static struct psg_measured begin(CUstream stream, const void *what)
{
    int gpu = psg_recorded(stream) ? -1 : psg_gpu_of_stream(stream);
    return gpu >= 0 ? psg_admit(gpu, stream, what) : (struct psg_measured){.gpu = -1, .pair = -1};
}

static uint64_t blocks(uint64_t x, uint64_t y, uint64_t z)
{
    return x * y * z;
}

static uint64_t blocks_of(const CUlaunchConfig *how)
{
    return how ? blocks(how->gridDimX, how->gridDimY, how->gridDimZ) : 0;
}

#define LAUNCHES(symbol, parameters, blocks, stream, ...)            \
    EXPORT CUresult symbol parameters                                \
    {                                                                \
        struct psg_measured measured = begin(stream, psg_sized(function, blocks)); \
        CUresult result = REAL(symbol, __VA_ARGS__);                 \
        psg_launched(measured, stream);                              \
        return result;                                               \
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
#define BLOCKS blocks(grid_x, grid_y, grid_z)
#define EXTENDED (const CUlaunchConfig *how, CUfunction function, void **arguments, void **extra)

LAUNCHES(cuLaunchKernel, KERNEL, BLOCKS, stream, KERNEL_ARGUMENTS)
LAUNCHES(cuLaunchKernel_ptsz, KERNEL, BLOCKS, stream ? stream : CU_STREAM_PER_THREAD, KERNEL_ARGUMENTS)
LAUNCHES(cuLaunchCooperativeKernel, COOPERATIVE, BLOCKS, stream, COOPERATIVE_ARGUMENTS)
LAUNCHES(cuLaunchCooperativeKernel_ptsz, COOPERATIVE, BLOCKS, stream ? stream : CU_STREAM_PER_THREAD,
         COOPERATIVE_ARGUMENTS)
LAUNCHES(cuLaunchKernelEx, EXTENDED, blocks_of(how), how ? how->hStream : NULL, how, function, arguments, extra)
LAUNCHES(cuLaunchKernelEx_ptsz, EXTENDED, blocks_of(how), how && how->hStream ? how->hStream : CU_STREAM_PER_THREAD, how,
         function, arguments, extra)
LAUNCHES(cuLaunch, (CUfunction function), 1, NULL, function)
LAUNCHES(cuLaunchGrid, (CUfunction function, int width, int height), blocks((unsigned)width, (unsigned)height, 1), NULL, function, width, height)
LAUNCHES(cuLaunchGridAsync, (CUfunction function, int width, int height, CUstream stream), blocks((unsigned)width, (unsigned)height, 1), stream,
         function, width, height, stream)

EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned int devices, unsigned int flags)
{
    struct psg_measured measured[PSG_GPUS];
    unsigned held = psg_limited() && launches ? (devices < PSG_GPUS ? devices : PSG_GPUS) : 0;
    for (unsigned i = 0; i < held; i++)
        measured[i] = begin(launches[i].hStream,
                            psg_sized(launches[i].function,
                                      blocks(launches[i].gridDimX, launches[i].gridDimY, launches[i].gridDimZ)));
    CUresult result = REAL(cuLaunchCooperativeKernelMultiDevice, launches, devices, flags);
    for (unsigned i = 0; i < held; i++)
        psg_launched(measured[i], launches[i].hStream);
    return result;
}

/* Asks the driver by `call` to run a graph on a stream. Memory is reserved last, for waiting may take long, and others settle
 * meanwhile; what is recorded does not run. */
#define LAUNCHED_GRAPH(used_stream, call) ({                         \
        CUstream on = used_stream;                                   \
        struct psg_measured measured = begin(on, executable);        \
        CUresult launched = psg_recorded(on) ? call : PSG_RUN(executable, on, call); \
        psg_launched(measured, on);                                  \
        launched;                                                    \
    })

EXPORT CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream)
{
    return LAUNCHED_GRAPH(stream, REAL(cuGraphLaunch, executable, stream));
}

EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec executable, CUstream stream)
{
    return LAUNCHED_GRAPH(stream ? stream : CU_STREAM_PER_THREAD, REAL(cuGraphLaunch_ptsz, executable, stream));
}
