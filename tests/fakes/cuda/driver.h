/* What the parts of the fake driver share. */
#ifndef DRIVER_H
#define DRIVER_H

#define __CUDA_API_VERSION_INTERNAL
#include "machine.h"

#include <cuda.h>
#include <pthread.h>

#ifdef __aarch64__
#define JUMP "b"
#else
#define JUMP "jmp"
#endif

#define DRIVER_GPUS 16
#define GRANULARITY (2ULL << 20)
#define POOL_STEP (32ULL << 20)
#define DRIVER_AREAS 3 /* stack, buffer of printf, heap of malloc, as CUlimit numbers them */
#define QUEUE 1024 /* launches of a context that a card takes before the next one waits */

/* The code with which all fails in a process that has run a kernel with a wrong address, or is a client of the multi-process
 * service and cannot come to a server, was terminated, or is beside one that has run such a kernel or was killed while it
 * worked; or 0. */
int driver_broken(void);

/* The code with which a client that waits for the GPU fails once its server is gone, or 0. */
int driver_server_gone(void);

/* What this process has launched will have ended then; and a kernel of it writes to a wrong address. */
void driver_in_flight(uint64_t until);
void driver_wrong_address(void);

/* The code with which all that has to do with the GPU of the current context fails once that has fallen off the bus, or 0. */
int driver_lost(void);

/* Leaves a function with the code that FAKE_GPU_FAULT names for this call of it, or where all fails. A thread that
   was cancelled ends here. */
#define FAULT_OF_THREAD()                                                                                              \
    do {                                                                                                               \
        int injected;                                                                                                  \
        pthread_testcancel();                                                                                          \
        injected = machine_fault(__func__);                                                                            \
        injected = injected != 0 ? injected : driver_broken();                                                            \
        if (injected != 0)                                                                                             \
            return (CUresult)injected;                                                                                 \
    } while (0)

/* And where the GPU is gone: for all functions but those about the contexts of a thread. */
#define FAULT()                                                                                                        \
    do {                                                                                                               \
        FAULT_OF_THREAD();                                                                                             \
        if (driver_lost() != 0)                                                                                        \
            return (CUresult)driver_lost();                                                                            \
    } while (0)

struct CUctx_st {
    unsigned gpu; /* of the machine */
    int device;   /* as CUDA_VISIBLE_DEVICES numbers it */
    int primary, references, alive;
    unsigned version;
    uint64_t areas[DRIVER_AREAS]; /* sizes that were asked for; 0: as the context came */
    struct CUctx_st *part_of; /* a green context's primary one, which owns what is allocated */
    uint64_t tail;     /* when the work of the context is done, streams included */
    uint64_t ends[QUEUE], launches; /* when each of the last ones is done */
    unsigned long long id;
};

struct CUmemPoolHandle_st {
    unsigned gpu;
    int device, own, host;
    uint64_t reserved, reserved_high, used, used_high, threshold;
    uint64_t unwaited; /* bytes that streams have freed since somebody last waited: they are free to use and not to trim */
    unsigned freed_on; /* the GPU of the stream that frees the last of them, and when it gets there */
    uint64_t freed_at;
    struct CUmemPoolHandle_st *next;
};

typedef enum { BLOCK_PLAIN, BLOCK_MANAGED, BLOCK_POOL, BLOCK_GRAPH, BLOCK_HOST, BLOCK_IMPORT } block_kind;

typedef struct block {
    CUdeviceptr address;
    uint64_t bytes;
    block_kind kind;
    unsigned gpu;
    struct CUctx_st *context;
    struct CUmemPoolHandle_st *pool;
    unsigned freed_on; /* by a stream of that GPU, which gets there at that moment of its work */
    uint64_t freed_at;
    struct block *next;
} block;

struct CUgraph_st;
struct CUstream_st {
    struct CUctx_st *context;
    uint64_t tail;
    unsigned flags;
    int priority;
    struct CUgraph_st *capture;
    int to_graph; /* the capture adds to a graph that was there before */
    int spoiled;  /* a forbidden call has made the capture invalid */
    struct CUstream_st *next_capture;
};

struct CUevent_st {
    uint64_t done;
    unsigned gpu;
    int recorded;
    CUevent next; /* of those whose time is not known yet */
};

struct CUfunc_st {
    uint64_t duration;
    char name[64];
};

/* One lock for everything that a process holds. */
extern pthread_mutex_t driver_lock;

CUresult driver_ready(void);
int driver_devices(void);
unsigned driver_gpu(int device);
/* Whether the calling thread has a context, and a place for the result. */
CUresult driver_current(const void *result);
/* The calling thread's context, or NULL. */
struct CUctx_st *driver_context(void);
struct CUctx_st *driver_stream_context(CUstream stream);

/* Memory; all with the lock held. */
CUdeviceptr driver_address(uint64_t bytes);
block *driver_add(CUdeviceptr address, uint64_t bytes, block_kind kind, unsigned gpu);
block *driver_remove(CUdeviceptr address);
block *driver_find(CUdeviceptr inside);
void driver_free_context(struct CUctx_st *context);
/* Whole pages of so many bytes. */
uint64_t driver_pages(uint64_t bytes);
/* Takes memory for a block of a context; 0 where the GPU has not that much left. */
CUdeviceptr driver_place(const struct CUctx_st *context, uint64_t bytes);
void driver_unplace(CUdeviceptr address, unsigned gpu, uint64_t bytes);
/* Frees what streams were told to free and have come to by now. */
void driver_free_reached(void);
/* Frees what only descriptors have held that are closed by now. */
void driver_free_exported(void);
/* Takes away what stands behind a sparse array. */
void driver_unmap_array(const void *array);
/* Arrays go with their context, too. */
void driver_free_arrays(const struct CUctx_st *context);

/* Pools; with the lock held. */
CUmemoryPool driver_default_pool(int device);
int driver_pool_take(CUmemoryPool pool, uint64_t bytes);
void driver_pool_give(CUmemoryPool pool, uint64_t bytes);
void driver_pool_give_in_order(CUmemoryPool pool, uint64_t bytes, CUstream stream);
/* What a synchronisation does: pools give back what is above their threshold. */
void driver_pools_settle(void);

/* Graphs. */
struct CUgraph_st *driver_new_graph(void);
CUresult driver_capture_kernel(CUstream stream, uint64_t duration);
CUresult driver_capture_alloc(CUstream stream, CUdeviceptr *address, uint64_t bytes);
CUresult driver_capture_free(CUstream stream, CUdeviceptr address);
/* Takes back a block of a graph that was freed outside of one; with the lock held. */
void driver_graph_give(unsigned gpu, uint64_t bytes);

/* Work. */
int driver_capturing(CUstream stream);
/* A call that would join the default stream to those that are captured: it makes every capture invalid. */
CUresult driver_join_default(CUstream stream);
/* The stream is captured no more. */
void driver_end_capture(CUstream stream);
CUresult driver_queue(CUstream stream, uint64_t duration);
/* How long a function runs with a grid: as long as its name says where there is room for all blocks at once. */
uint64_t driver_duration(CUfunction function, uint64_t x, uint64_t y, uint64_t z);
/* When the work of a stream ends, as its GPU counts; whether that has come. */
uint64_t driver_tail(CUstream stream);
int driver_has_ended(unsigned gpu, uint64_t moment);
void driver_wait(unsigned gpu, uint64_t moment);

/* An entry point of the driver, as cuGetProcAddress knows it. */
typedef struct {
    const char *symbol;
    int version;
    int per_thread;
    void *function;
} driver_entry;
extern const driver_entry driver_entries[];

#endif
