/* The driver as this library sees it: NVIDIA's headers with every version of every function, and the real functions. */
#ifndef PSG_DRIVER_H
#define PSG_DRIVER_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include "shim.h"

/* What newer headers leave out, and older drivers still have. */
CUresult cuGetProcAddress_ptsz(const char *symbol, void **function, int version, cuuint64_t flags);
CUresult cuGetProcAddress_v2_ptsz(const char *symbol, void **function, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult *status);
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned int devices, unsigned int flags);
CUresult cuLaunch(CUfunction function);
CUresult cuLaunchGrid(CUfunction function, int width, int height);
CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream);
CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode);
CUresult cuStreamBeginCapture_ptsz(CUstream stream);
CUresult cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
                                            CUgraphRecaptureCallback differs, void *data);
CUresult cuCtxAttach(CUcontext *context, unsigned int flags);
CUresult cuCtxDetach(CUcontext context);
CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *maps, unsigned int count, CUstream stream);

/* Functions of the driver that are called here and are not hooked. */
#define PSG_USED_FUNCTIONS(USE)      \
    USE(cuDeviceGetCount)            \
    USE(cuDeviceGetUuid)             \
    USE(cuDeviceGetUuid_v2)          \
    USE(cuDevicePrimaryCtxGetState)  \
    USE(cuCtxGetCurrent)             \
    USE(cuCtxGetDevice)              \
    USE(cuCtxGetLimit)               \
    USE(cuDeviceGetAttribute)        \
    USE(cuCtxPushCurrent_v2)         \
    USE(cuCtxPopCurrent_v2)          \
    USE(cuMemGetAllocationGranularity) \
    USE(cuDeviceGetMemPool)          \
    USE(cuDeviceGetDefaultMemPool)   \
    USE(cuMemGetDefaultMemPool)      \
    USE(cuMemPoolGetAttribute)       \
    USE(cuDeviceGetGraphMemAttribute) \
    USE(cuGraphGetNodes)             \
    USE(cuGraphNodeGetType)          \
    USE(cuGraphMemAllocNodeGetParams) \
    USE(cuGraphMemFreeNodeGetParams) \
    USE(cuGraphChildGraphNodeGetGraph) \
    USE(cuStreamGetCtx)              \
    USE(cuStreamGetDevice)           \
    USE(cuStreamGetGreenCtx)         \
    USE(cuStreamIsCapturing)         \
    USE(cuThreadExchangeStreamCaptureMode) \
    USE(cuStreamQuery)               \
    USE(cuEventCreate)               \
    USE(cuEventRecord)               \
    USE(cuEventQuery)                \
    USE(cuEventElapsedTime)          \
    USE(cuEventDestroy_v2)

struct psg_driver {
#define HOOK(symbol, base, since, flags) __typeof__(&symbol) symbol;
#define ALSO(symbol, base, since, flags)
#include "hooks.def"
#undef HOOK
#undef ALSO
#define USE(symbol) __typeof__(&symbol) symbol;
    PSG_USED_FUNCTIONS(USE)
#undef USE
};

/* The real functions; a null pointer where this driver does not have one, or where there is no driver. */
extern struct psg_driver psg_driver;

/* True once psg_driver is filled; the second one loads no driver for it. */
bool psg_driver_load(void);
bool psg_driver_loaded(void);

/* Takes a library as the driver where none is loaded by its usual name; false: another one is in use already. */
bool psg_driver_adopt(void *library);

/* Whether a function is the driver's own. */
bool psg_driver_has(const void *function);

/* Calls `each` with what the driver answered for every line of hooks.def, by its number: all that it has by name first, for
 * what a name says of a pointer is certain, then what its resolver says. Null where it has none. */
void psg_driver_each(void (*each)(unsigned hook, void *real));

/* How deep this thread is inside the driver: what the driver itself calls is never charged or held. */
extern __thread int psg_depth;

#define REAL(symbol, ...) \
    (psg_driver_load() && psg_driver.symbol ? ({ \
        psg_depth++; \
        CUresult psg_result = psg_driver.symbol(__VA_ARGS__); \
        psg_depth--; \
        psg_result; \
    }) : CUDA_ERROR_STUB_LIBRARY)

#endif
