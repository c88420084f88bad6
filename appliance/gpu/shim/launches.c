/* Every way to launch work: kernels, cooperative ones, graphs. */
#include "compute.h"
#include "driver.h"
#include "graph.h"
#include "limits.h"
#include "record.h"
#include "stream.h"

/* What is recorded does not run, and the driver must not be asked about its stream. */
static struct psg_measured begin_launch(CUstream stream, const void *what)
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

static CUstream stream_of(const CUlaunchConfig *how)
{
    return how ? how->hStream : NULL;
}

/* Asks the driver by `call` to launch `what` on a stream. */
#define LAUNCHED(used_stream, what, call) ({                         \
        CUstream on = used_stream;                                   \
        struct psg_measured measured = begin_launch(on, what);       \
        CUresult launched = call;                                    \
        psg_launched(measured, on);                                  \
        launched;                                                    \
    })

/* A default stream of the functions that give each thread one of its own. */
#define OWN(stream) (stream ? stream : CU_STREAM_PER_THREAD)

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                               unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared,
                               CUstream stream, void **arguments, void **extra)
{
    return LAUNCHED(stream, psg_sized(function, blocks(grid_x, grid_y, grid_z)),
                    REAL(cuLaunchKernel, function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream,
                                         arguments, extra));
}

EXPORT CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                    unsigned int block_x, unsigned int block_y, unsigned int block_z,
                                    unsigned int shared, CUstream stream, void **arguments, void **extra)
{
    return LAUNCHED(OWN(stream), psg_sized(function, blocks(grid_x, grid_y, grid_z)),
                    REAL(cuLaunchKernel_ptsz, function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared,
                                              stream, arguments, extra));
}

EXPORT CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                          unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                          unsigned int block_z, unsigned int shared, CUstream stream, void **arguments)
{
    return LAUNCHED(stream, psg_sized(function, blocks(grid_x, grid_y, grid_z)),
                    REAL(cuLaunchCooperativeKernel, function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared,
                                                    stream, arguments));
}

EXPORT CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                               unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                               unsigned int block_z, unsigned int shared, CUstream stream,
                                               void **arguments)
{
    return LAUNCHED(OWN(stream), psg_sized(function, blocks(grid_x, grid_y, grid_z)),
                    REAL(cuLaunchCooperativeKernel_ptsz, function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                                         shared, stream, arguments));
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *how, CUfunction function, void **arguments, void **extra)
{
    return LAUNCHED(stream_of(how), psg_sized(function, blocks_of(how)),
                    REAL(cuLaunchKernelEx, how, function, arguments, extra));
}

EXPORT CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *how, CUfunction function, void **arguments, void **extra)
{
    return LAUNCHED(OWN(stream_of(how)), psg_sized(function, blocks_of(how)),
                    REAL(cuLaunchKernelEx_ptsz, how, function, arguments, extra));
}

EXPORT CUresult cuLaunch(CUfunction function)
{
    return LAUNCHED(NULL, psg_sized(function, 1), REAL(cuLaunch, function));
}

EXPORT CUresult cuLaunchGrid(CUfunction function, int width, int height)
{
    return LAUNCHED(NULL, psg_sized(function, blocks((unsigned)width, (unsigned)height, 1)),
                    REAL(cuLaunchGrid, function, width, height));
}

EXPORT CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream)
{
    return LAUNCHED(stream, psg_sized(function, blocks((unsigned)width, (unsigned)height, 1)),
                    REAL(cuLaunchGridAsync, function, width, height, stream));
}

EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned int devices, unsigned int flags)
{
    struct psg_measured measured[PSG_GPUS];
    unsigned held = psg_limited() && launches ? (devices < PSG_GPUS ? devices : PSG_GPUS) : 0;
    for (unsigned i = 0; i < held; i++)
        measured[i] = begin_launch(launches[i].hStream,
                                   psg_sized(launches[i].function, blocks(launches[i].gridDimX, launches[i].gridDimY,
                                                                          launches[i].gridDimZ)));
    CUresult result = REAL(cuLaunchCooperativeKernelMultiDevice, launches, devices, flags);
    for (unsigned i = 0; i < held; i++)
        psg_launched(measured[i], launches[i].hStream);
    return result;
}

/* Asks the driver by `call` to run a graph on a stream. Memory is reserved last, for waiting may take long, and others
 * settle meanwhile; what is recorded does not run. */
#define LAUNCHED_GRAPH(used_stream, call) \
    LAUNCHED(used_stream, executable, psg_recorded(used_stream) ? call : PSG_RUN(executable, used_stream, call))

EXPORT CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream)
{
    return LAUNCHED_GRAPH(stream, REAL(cuGraphLaunch, executable, stream));
}

EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec executable, CUstream stream)
{
    return LAUNCHED_GRAPH(OWN(stream), REAL(cuGraphLaunch_ptsz, executable, stream));
}
