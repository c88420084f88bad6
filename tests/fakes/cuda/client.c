/* A program that uses the driver as its input says, one command a line: it answers each with the driver's code and what
 * the driver told, such as "0 17179869184". Names of objects are numbers from 0 to 63, each kind with its own.
 *
 * Its first argument says how it finds the driver's functions: linked, dlsym, or proc:FLAGS for cuGetProcAddress_v2.
 */
#define _GNU_SOURCE
#include "client.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEFINE(symbol, name, version) __typeof__(name) *p_##symbol;
FUNCTIONS(DEFINE)

typedef CUresult resolver(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

CUdeviceptr memory[OBJECTS];
static CUdeviceptr ranges[OBJECTS];
static CUmemGenericAllocationHandle handles[OBJECTS];
static int files[OBJECTS];
static CUmemoryPool pools[OBJECTS];
static CUarray arrays[OBJECTS];
static CUmipmappedArray mipmaps[OBJECTS];
static number told[12];
static int telling;

void tell(number value)
{
    told[telling++] = value;
}

static void resolve(const char *how)
{
    void *driver = strcmp(how, "linked") == 0 ? NULL : dlopen("libcuda.so.1", RTLD_NOW);
    resolver *ask = driver ? (resolver *)dlsym(driver, "cuGetProcAddress_v2") : NULL;
    int flags = strncmp(how, "proc:", 5) == 0 ? atoi(how + 5) : -1;
    CUdriverProcAddressQueryResult result;
#define RESOLVE(symbol, name, version)                                                                                 \
    if (driver == NULL)                                                                                                \
        p_##symbol = name;                                                                                             \
    else if (flags < 0)                                                                                                \
        p_##symbol = (__typeof__(name) *)dlsym(driver, #name);                                                         \
    else                                                                                                               \
        ask(#symbol, (void **)&p_##symbol, version, (cuuint64_t)flags, &result);
    FUNCTIONS(RESOLVE)
}

static CUresult pool_number(number pool, CUmemPool_attribute which)
{
    cuuint64_t value = 0;
    CUresult code = p_cuMemPoolGetAttribute(pools[pool], which, &value);
    return tell(value), code;
}

static CUresult make_pool(number pool, number device)
{
    CUmemPoolProps as = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, {(int)device}}};
    return p_cuMemPoolCreate(&pools[pool], &as);
}

/* A pool of a type, CUmemAllocationType, in a place, CUmemLocationType, of the first device. */
static CUresult make_pool_of(number pool, number type, number place)
{
    CUmemPoolProps as = {.allocType = (CUmemAllocationType)type, .location = {(CUmemLocationType)place, {0}}};
    return p_cuMemPoolCreate(&pools[pool], &as);
}

static CUresult make_memory(number handle, number bytes, number device, int on_host)
{
    CUmemAllocationProp as = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    as.location.type = on_host ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
    as.location.id = (int)device;
    return p_cuMemCreate(&handles[handle], bytes, &as, 0);
}

static CUresult export_memory(number handle, number file)
{
    return p_cuMemExportToShareableHandle(&files[file], handles[handle], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

static CUresult import_memory(number handle, number file)
{
    return p_cuMemImportFromShareableHandle(
        &handles[handle], (void *)(intptr_t)files[file], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

static CUresult share_memory(number handle, number into)
{
    CUresult code = export_memory(handle, into);
    if (code != CUDA_SUCCESS)
        return code;
    code = import_memory(into, into);
    close(files[into]);
    return code;
}

static CUresult make_array(number name, number width, number height, number depth)
{
    CUDA_ARRAY_DESCRIPTOR flat = {width, height, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    CUDA_ARRAY3D_DESCRIPTOR deep = {width, height, depth, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
    return depth == 0 ? p_cuArrayCreate(&arrays[name], &flat) : p_cuArray3DCreate(&arrays[name], &deep);
}

static CUresult make_sparse(number name)
{
    CUDA_ARRAY3D_DESCRIPTOR as = {4096, 4096, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, CUDA_ARRAY3D_SPARSE};
    return p_cuArray3DCreate(&arrays[name], &as);
}

/* Puts memory behind a part of a sparse array, or takes it away. */
static CUresult set_part(number name, number part, int mapped, number handle)
{
    CUarrayMapInfo as = {.resourceType = CU_RESOURCE_TYPE_ARRAY, .resource = {.array = arrays[name]}, .deviceBitMask = 1};
    as.subresource.sparseLevel.offsetX = (unsigned)part;
    as.memOperationType = mapped ? CU_MEM_OPERATION_TYPE_MAP : CU_MEM_OPERATION_TYPE_UNMAP;
    as.memHandleType = CU_MEM_HANDLE_TYPE_GENERIC;
    as.memHandle.memHandle = mapped ? handles[handle] : 0;
    return p_cuMemMapArrayAsync(&as, 1, NULL);
}

static CUresult make_mipmap(number name, number width, number height, number levels)
{
    CUDA_ARRAY3D_DESCRIPTOR as = {width, height, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
    return p_cuMipmappedArrayCreate(&mipmaps[name], &as, (unsigned)levels);
}

static CUresult memory_command(const char *word, const number *n)
{
    size_t one = 0, two = 0;
    CUresult code;
    if (same(word, "malloc"))
        return p_cuMemAlloc(&memory[n[0]], n[1]);
    if (same(word, "pitch")) {
        code = p_cuMemAllocPitch(&memory[n[0]], &one, n[1], n[2], 4);
        return tell(one), code;
    }
    if (same(word, "managed"))
        return p_cuMemAllocManaged(&memory[n[0]], n[1], CU_MEM_ATTACH_GLOBAL);
    if (same(word, "host")) {
        void *place;
        return p_cuMemAllocHost(&place, n[0]);
    }
    if (same(word, "free"))
        return p_cuMemFree(memory[n[0]]);
    if (same(word, "async"))
        return p_cuMemAllocAsync(&memory[n[0]], n[1], NULL);
    if (same(word, "frompool"))
        return p_cuMemAllocFromPoolAsync(&memory[n[0]], n[2], pools[n[1]], NULL);
    if (same(word, "freeasync"))
        return p_cuMemFreeAsync(memory[n[0]], NULL);
    if (same(word, "array"))
        return make_array(n[0], n[1], n[2], n[3]);
    if (same(word, "arrayfree"))
        return p_cuArrayDestroy(arrays[n[0]]);
    if (same(word, "sparse"))
        return make_sparse(n[0]);
    if (same(word, "mappart"))
        return set_part(n[0], n[1], 1, n[2]);
    if (same(word, "unmappart"))
        return set_part(n[0], n[1], 0, 0);
    if (same(word, "mipmap"))
        return make_mipmap(n[0], n[1], n[2], n[3]);
    if (same(word, "mipmapfree"))
        return p_cuMipmappedArrayDestroy(mipmaps[n[0]]);
    if (same(word, "info")) {
        code = p_cuMemGetInfo(&one, &two);
        return tell(one), tell(two), code;
    }
    if (same(word, "total")) {
        code = p_cuDeviceTotalMem(&one, (int)n[0]);
        return tell(one), code;
    }
    return CUDA_ERROR_UNKNOWN;
}

static CUresult pool_command(const char *word, const number *n)
{
    cuuint64_t value = n[1];
    if (same(word, "pool"))
        return make_pool(n[0], n[1]);
    if (same(word, "poolof"))
        return make_pool_of(n[0], n[1], n[2]);
    if (same(word, "defaultof")) {
        CUmemLocation place = {(CUmemLocationType)n[2], {0}};
        return cuMemGetDefaultMemPool(&pools[n[0]], &place, (CUmemAllocationType)n[1]);
    }
    if (same(word, "defaultpool"))
        return p_cuDeviceGetDefaultMemPool(&pools[n[0]], (int)n[1]);
    if (same(word, "usepool"))
        return cuDeviceSetMemPool((int)n[1], pools[n[0]]);
    if (same(word, "poolfree"))
        return p_cuMemPoolDestroy(pools[n[0]]);
    if (same(word, "trim"))
        return p_cuMemPoolTrimTo(pools[n[0]], n[1]);
    if (same(word, "threshold"))
        return p_cuMemPoolSetAttribute(pools[n[0]], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value);
    if (same(word, "reserved"))
        return pool_number(n[0], CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    return CUDA_ERROR_UNKNOWN;
}

static CUresult virtual_command(const char *word, const number *n)
{
    if (same(word, "create"))
        return make_memory(n[0], n[1], n[2], 0);
    if (same(word, "createhost"))
        return make_memory(n[0], n[1], 0, 1);
    if (same(word, "release"))
        return p_cuMemRelease(handles[n[0]]);
    if (same(word, "reserve"))
        return p_cuMemAddressReserve(&ranges[n[0]], n[1], 0, 0, 0);
    if (same(word, "unreserve"))
        return p_cuMemAddressFree(ranges[n[0]], n[1]);
    if (same(word, "map"))
        return p_cuMemMap(ranges[n[0]] + n[3], n[2], 0, handles[n[1]], 0);
    if (same(word, "unmap"))
        return p_cuMemUnmap(ranges[n[0]] + n[2], n[1]);
    if (same(word, "retain"))
        return p_cuMemRetainAllocationHandle(&handles[n[0]], (void *)(uintptr_t)ranges[n[1]]);
    if (same(word, "share"))
        return share_memory(n[0], n[1]);
    if (same(word, "export"))
        return export_memory(n[0], n[1]);
    if (same(word, "import"))
        return import_memory(n[0], n[1]);
    if (same(word, "close"))
        return close(files[n[0]]) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
    return CUDA_ERROR_UNKNOWN;
}

static CUresult obey(const char *word, const number *n, const char *text)
{
    CUresult code = memory_command(word, n);
    if (code == CUDA_ERROR_UNKNOWN)
        code = pool_command(word, n);
    if (code == CUDA_ERROR_UNKNOWN)
        code = virtual_command(word, n);
    if (code == CUDA_ERROR_UNKNOWN)
        code = graph_command(word, n);
    if (code == CUDA_ERROR_UNKNOWN)
        code = stream_command(word, n);
    if (code == CUDA_ERROR_UNKNOWN)
        code = context_command(word, n);
    return code == CUDA_ERROR_UNKNOWN ? work_command(word, n, text) : code;
}

int main(int count, char **arguments)
{
    char line[256], word[32], text[128];
    resolve(count > 1 ? arguments[1] : "linked");
    setvbuf(stdout, NULL, _IOLBF, 0);
    setvbuf(stdin, NULL, _IONBF, 0); /* what is not read yet is left to a program after exec */
    while (fgets(line, sizeof line, stdin)) {
        number n[4] = {0};
        int code;
        text[0] = word[0] = 0;
        sscanf(line, "%31s %llu %llu %llu %llu", word, &n[0], &n[1], &n[2], &n[3]);
        sscanf(line, "%*s %*s %127s", text);
        telling = 0;
        if (same(word, "fork")) { /* the rest is the child's; the parent waits and ends as it does */
            int status;
            pid_t child = fork();
            if (child != 0) {
                waitpid(child, &status, 0);
                return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
            }
            code = 0;
        } else if (same(word, "exec")) { /* the same program again, which reads on */
            execv("/proc/self/exe", arguments);
            code = 999;
        } else {
            code = (int)obey(word, n, text);
        }
        printf("%d", code);
        for (int index = 0; index < telling; index++)
            printf(" %llu", told[index]);
        printf("\n");
    }
    return 0;
}
