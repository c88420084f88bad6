/* Capture of streams into graphs. */
#include "driver.h"

static CUstream captured; /* all streams that are, with the lock held */

CUresult driver_join_default(CUstream stream)
{
    CUresult code = CUDA_SUCCESS;
    pthread_mutex_lock(&driver_lock);
    for (CUstream each = stream == NULL || stream == CU_STREAM_LEGACY ? captured : NULL; each; each = each->next_capture) {
        each->spoiled = 1;
        code = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    pthread_mutex_unlock(&driver_lock);
    return code;
}

void driver_end_capture(CUstream stream)
{
    pthread_mutex_lock(&driver_lock);
    for (CUstream *each = &captured; *each; each = &(*each)->next_capture)
        if (*each == stream) {
            *each = stream->next_capture;
            break;
        }
    stream->capture = NULL;
    stream->spoiled = 0;
    pthread_mutex_unlock(&driver_lock);
}

static CUresult begin(CUstream stream, CUgraph graph)
{
    if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture != NULL)
        return CUDA_ERROR_ILLEGAL_STATE;
    stream->to_graph = graph != NULL;
    stream->capture = graph ? graph : driver_new_graph();
    pthread_mutex_lock(&driver_lock);
    stream->next_capture = captured;
    captured = stream;
    pthread_mutex_unlock(&driver_lock);
    return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
    FAULT();
    (void)mode;
    return begin(hStream, NULL);
}

CUresult cuStreamBeginCapture(CUstream hStream)
{
    return cuStreamBeginCapture_v2(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
    const CUgraphEdgeData *dependencyData, size_t numDependencies, CUstreamCaptureMode mode)
{
    FAULT();
    (void)dependencies, (void)dependencyData, (void)numDependencies, (void)mode;
    return begin(hStream, hGraph);
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
    FAULT();
    if (!driver_capturing(hStream))
        return CUDA_ERROR_ILLEGAL_STATE;
    CUresult code = hStream->spoiled ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    *phGraph = hStream->spoiled ? NULL : hStream->capture;
    driver_end_capture(hStream);
    return code;
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
    FAULT();
    *captureStatus = driver_capturing(hStream) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static CUresult capture_info(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, size_t *count)
{
    *status = driver_capturing(stream) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    if (!driver_capturing(stream))
        return CUDA_SUCCESS;
    if (id != NULL)
        *id = (cuuint64_t)(uintptr_t)stream->capture;
    if (graph != NULL)
        *graph = stream->capture;
    if (count != NULL)
        *count = 0;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out)
{
    FAULT();
    return capture_info(hStream, captureStatus_out, id_out, NULL, NULL);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
    CUgraph *graph_out, const CUgraphNode **dependencies_out, size_t *numDependencies_out)
{
    FAULT();
    (void)dependencies_out;
    return capture_info(hStream, captureStatus_out, id_out, graph_out, numDependencies_out);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
    CUgraph *graph_out, const CUgraphNode **dependencies_out, const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out)
{
    FAULT();
    (void)dependencies_out, (void)edgeData_out;
    return capture_info(hStream, captureStatus_out, id_out, graph_out, numDependencies_out);
}
