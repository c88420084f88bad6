/* Functions of the program that the driver calls in the middle of a call: what they ask of the driver is the program's. */
#include <stdlib.h>

#include "driver.h"
#include "limits.h"

struct callback {
    union {
        CUhostFn destroy;
        CUlogsCallback log;
    };
    void *data;
};

static bool watched(void)
{
    return psg_depth == 0 && psg_limited();
}

/* A user object is destroyed once. */
static void destroy(void *argument)
{
    struct callback callback = *(struct callback *)argument;
    int depth = psg_depth;
    free(argument);
    psg_depth = 0;
    callback.destroy(callback.data);
    psg_depth = depth;
}

EXPORT CUresult cuUserObjectCreate(CUuserObject *object, void *data, CUhostFn function, unsigned int count,
                                   unsigned int flags)
{
    struct callback *made = watched() && function ? malloc(sizeof *made) : NULL;
    if (!made)
        return REAL(cuUserObjectCreate, object, data, function, count, flags);
    *made = (struct callback){.destroy = function, .data = data};
    CUresult result = REAL(cuUserObjectCreate, object, made, destroy, count, flags);
    if (result != CUDA_SUCCESS)
        free(made);
    return result;
}

static void write_log(void *argument, CUlogLevel level, char *message, size_t length)
{
    const struct callback *callback = argument;
    int depth = psg_depth;
    psg_depth = 0;
    callback->log(callback->data, level, message, length);
    psg_depth = depth;
}

/* What was made for it stays, for a thread may be in it when it is taken back. */
EXPORT CUresult cuLogsRegisterCallback(CUlogsCallback function, void *data, CUlogsCallbackHandle *handle)
{
    struct callback *made = watched() && function ? malloc(sizeof *made) : NULL;
    if (!made)
        return REAL(cuLogsRegisterCallback, function, data, handle);
    *made = (struct callback){.log = function, .data = data};
    CUresult result = REAL(cuLogsRegisterCallback, write_log, made, handle);
    if (result != CUDA_SUCCESS)
        free(made);
    return result;
}
