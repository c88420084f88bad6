/* What the client does with contexts. */
#include "client.h"

#include <string.h>

static CUcontext contexts[OBJECTS];

CUresult context_command(const char *word, const unsigned long long *n)
{
    if (same(word, "init"))
        return p_cuInit(0);
    if (same(word, "primary")) {
        CUresult code = p_cuDevicePrimaryCtxRetain(&contexts[n[0]], (int)n[1]);
        return code != CUDA_SUCCESS ? code : p_cuCtxSetCurrent(contexts[n[0]]);
    }
    if (same(word, "unprimary"))
        return p_cuDevicePrimaryCtxRelease((int)n[0]);
    if (same(word, "resetprimary"))
        return cuDevicePrimaryCtxReset_v2((int)n[0]);
    if (same(word, "context"))
        return p_cuCtxCreate(&contexts[n[0]], 0, (int)n[1]);
    if (same(word, "contextfree"))
        return p_cuCtxDestroy(contexts[n[0]]);
    if (same(word, "attach"))
        return cuCtxAttach(&contexts[n[0]], 0);
    if (same(word, "detach"))
        return cuCtxDetach(contexts[n[0]]);
    if (same(word, "current"))
        return p_cuCtxSetCurrent(contexts[n[0]]);
    if (same(word, "limit"))
        return p_cuCtxSetLimit((CUlimit)n[0], n[1]);
    if (same(word, "sync"))
        return p_cuCtxSynchronize();
    if (same(word, "syncof"))
        return cuCtxSynchronize_v2(contexts[n[0]]);
    return CUDA_ERROR_UNKNOWN;
}
