/* The driver's functions as the client has found them: p_cuMemAlloc and so on, in their newest forms. */
#ifndef CLIENT_H
#define CLIENT_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#define FUNCTIONS(X)                                                                                                   \
    X(cuInit, cuInit, 2000)                                                                                            \
    X(cuDeviceGetCount, cuDeviceGetCount, 2000)                                                                        \
    X(cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020)                                                                     \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000)                                                        \
    X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000)                                                  \
    X(cuCtxCreate, cuCtxCreate_v2, 3020)                                                                               \
    X(cuCtxDestroy, cuCtxDestroy_v2, 4000)                                                                             \
    X(cuCtxSetCurrent, cuCtxSetCurrent, 4000)                                                                          \
    X(cuCtxGetCurrent, cuCtxGetCurrent, 4000)                                                                          \
    X(cuGreenCtxCreate, cuGreenCtxCreate, 12040)                                                                       \
    X(cuGreenCtxDestroy, cuGreenCtxDestroy, 12040)                                                                     \
    X(cuGreenCtxStreamCreate, cuGreenCtxStreamCreate, 12050)                                                           \
    X(cuCtxFromGreenCtx, cuCtxFromGreenCtx, 12040)                                                                     \
    X(cuCtxSetLimit, cuCtxSetLimit, 3010)                                                                              \
    X(cuCtxSynchronize, cuCtxSynchronize, 2000)                                                                        \
    X(cuMemGetInfo, cuMemGetInfo_v2, 3020)                                                                             \
    X(cuMemAlloc, cuMemAlloc_v2, 3020)                                                                                 \
    X(cuMemAllocPitch, cuMemAllocPitch_v2, 3020)                                                                       \
    X(cuMemAllocManaged, cuMemAllocManaged, 6000)                                                                      \
    X(cuMemFree, cuMemFree_v2, 3020)                                                                                   \
    X(cuMemAllocHost, cuMemAllocHost_v2, 3020)                                                                         \
    X(cuMemAllocAsync, cuMemAllocAsync, 11020)                                                                         \
    X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020)                                                         \
    X(cuMemFreeAsync, cuMemFreeAsync, 11020)                                                                           \
    X(cuMemPoolCreate, cuMemPoolCreate, 11020)                                                                         \
    X(cuMemPoolDestroy, cuMemPoolDestroy, 11020)                                                                       \
    X(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020)                                                                         \
    X(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020)                                                             \
    X(cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020)                                                             \
    X(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020)                                                     \
    X(cuMemCreate, cuMemCreate, 10020)                                                                                 \
    X(cuMemRelease, cuMemRelease, 10020)                                                                               \
    X(cuMemAddressReserve, cuMemAddressReserve, 10020)                                                                 \
    X(cuMemAddressFree, cuMemAddressFree, 10020)                                                                       \
    X(cuMemMap, cuMemMap, 10020)                                                                                       \
    X(cuMemUnmap, cuMemUnmap, 10020)                                                                                   \
    X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000)                                                 \
    X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020)                                               \
    X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020)                                           \
    X(cuMemMapArrayAsync, cuMemMapArrayAsync, 11010)                                                                   \
    X(cuArrayCreate, cuArrayCreate_v2, 3020)                                                                           \
    X(cuArray3DCreate, cuArray3DCreate_v2, 3020)                                                                       \
    X(cuArrayDestroy, cuArrayDestroy, 2000)                                                                            \
    X(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000)                                                            \
    X(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000)                                                          \
    X(cuGraphCreate, cuGraphCreate, 10000)                                                                             \
    X(cuGraphDestroy, cuGraphDestroy, 10000)                                                                             \
    X(cuUserObjectCreate, cuUserObjectCreate, 11030)                                                                   \
    X(cuGraphRetainUserObject, cuGraphRetainUserObject, 11030)                                                         \
    X(cuGraphAddKernelNode, cuGraphAddKernelNode_v2, 12000)                                                            \
    X(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, 11040)                                                           \
    X(cuGraphAddMemFreeNode, cuGraphAddMemFreeNode, 11040)                                                             \
    X(cuGraphAddNode, cuGraphAddNode_v2, 12030)                                                                        \
    X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040)                                                 \
    X(cuGraphExecDestroy, cuGraphExecDestroy, 10000)                                                                   \
    X(cuGraphLaunch, cuGraphLaunch, 10000)                                                                             \
    X(cuGraphUpload, cuGraphUpload, 11010)                                                                             \
    X(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040)                                                               \
    X(cuStreamCreate, cuStreamCreate, 2000)                                                                            \
    X(cuStreamDestroy, cuStreamDestroy_v2, 4000)                                                                       \
    X(cuStreamBeginCapture, cuStreamBeginCapture_v2, 10010)                                                            \
    X(cuStreamEndCapture, cuStreamEndCapture, 10000)                                                                   \
    X(cuStreamSynchronize, cuStreamSynchronize, 2000)                                                                  \
    X(cuModuleLoadData, cuModuleLoadData, 2000)                                                                        \
    X(cuModuleGetFunction, cuModuleGetFunction, 2000)                                                                  \
    X(cuLaunchKernel, cuLaunchKernel, 4000)                                                                            \
    X(cuLaunchKernelEx, cuLaunchKernelEx, 11060)                                                                       \
    X(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, 9000)

#define CLIENT_DECLARE(symbol, name, version) extern __typeof__(name) *p_##symbol;
FUNCTIONS(CLIENT_DECLARE)

/* Random allocations and releases of every kind, each of at most `largest` bytes, at last none. Returns a code that is
 * neither success nor out of memory where there was one; counts both. */
CUresult churn(unsigned long long operations, unsigned long long seed, unsigned long long largest,
    unsigned long long *succeeded, unsigned long long *refused);

typedef unsigned long long number;

/* One more number of the answer to a command; the time in ns; a launch of a function or a graph (`Work` in steps.py). */
void tell(number value);
number now(void);
CUresult launch_as(number function, number how);
#define SMALL_GRIDS 4
#define LARGE_GRID (4000 * 80 * 16) /* for which a GPU of 80 multiprocessors has to begin 4,000 times */

/* Adds launches to what a step does. */
CUresult add_part(number function, number count, number how);

/* Steps for some ms, each followed by a synchronisation where it `waits` (2: for an event on the next stream, 3: by asking
 * for that again and again, 4: for each stream), and begun every so many ms (0: at once). Tells the
 * ns that all steps took, those of the longest, how many there were, and then the launches of each part. */
CUresult steps(number milliseconds, number waits, number every);

/* Streams, by names from 0 on; the next one of all that were made, in turn. */
#define STREAMS 80
CUstream stream_named(unsigned long long name);
CUstream next_stream(void);
CUresult synchronise_streams(void);

#define same(word, other) (strcmp(word, other) == 0)

/* Names of objects of a kind. */
#define OBJECTS 64

extern CUdeviceptr memory[OBJECTS];
extern CUfunction functions[OBJECTS];
extern CUgraphExec execs[OBJECTS];

/* Obey a command about graphs, streams, contexts, or launches; CUDA_ERROR_UNKNOWN where it is about something else. */
CUresult graph_command(const char *word, const unsigned long long *n);
CUresult stream_command(const char *word, const unsigned long long *n);
CUresult context_command(const char *word, const unsigned long long *n);
CUresult work_command(const char *word, const unsigned long long *n, const char *text);

#endif
