/* What the client does over and over: launches of several kinds, a synchronisation, a pause. */
#define _GNU_SOURCE
#include "client.h"

#include <time.h>

#define PARTS 8

static struct {
    number function, count, how;
} parts[PARTS];
static int part_count;

CUresult add_part(number function, number count, number how)
{
    if (part_count == PARTS)
        return CUDA_ERROR_INVALID_VALUE;
    parts[part_count].function = function;
    parts[part_count].count = count;
    parts[part_count++].how = how;
    return CUDA_SUCCESS;
}

/* One step: all parts in turn, until the end of the time at most. Counts the launches of each part. */
static CUresult step(number end, number *launches)
{
    CUresult code = CUDA_SUCCESS;
    for (int each = 0; each < part_count; each++)
        for (number one = 0; one < parts[each].count && code == CUDA_SUCCESS && now() < end; one++, launches[each]++)
            code = launch_as(parts[each].function, parts[each].how);
    return code;
}

static void sleep_until(number ns)
{
    struct timespec at = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

static CUresult wait(number how)
{
    static CUevent event;
    if (how < 2)
        return p_cuCtxSynchronize();
    if (how == 4)
        return synchronise_streams();
    CUresult code = event ? CUDA_SUCCESS : cuEventCreate(&event, CU_EVENT_DEFAULT);
    if (code == CUDA_SUCCESS)
        code = cuEventRecord(event, next_stream());
    if (code != CUDA_SUCCESS || how == 2)
        return code != CUDA_SUCCESS ? code : cuEventSynchronize(event);
    while ((code = cuEventQuery(event)) == CUDA_ERROR_NOT_READY)
        sleep_until(now() + 100000);
    return code;
}

CUresult steps(number milliseconds, number waits, number every)
{
    number begun = now(), end = begun + milliseconds * 1000000, all = 0, longest = 0, count = 0;
    number launches[PARTS] = {0};
    CUresult code = CUDA_SUCCESS;
    for (number from = begun; code == CUDA_SUCCESS && from < end; from = now(), count++) {
        code = step(end, launches);
        if (code == CUDA_SUCCESS && waits)
            code = wait(waits);
        number took = now() - from;
        all += took;
        longest = took > longest ? took : longest;
        number next = every ? from + every * 1000000 : 0;
        if (next)
            sleep_until(next);
    }
    tell(all), tell(longest), tell(count);
    for (int each = 0; each < part_count; each++)
        tell(launches[each]);
    return code;
}
