/* The GPUs of one machine, as the fake driver and the fake NVML see them: their memory, their work and who uses both.
 *
 * All processes that name the same file in FAKE_GPU_STATE share one machine; without it a process has a machine of its
 * own. Settings come from the environment and are read once, at the first call:
 *
 * FAKE_GPU_STATE       file of the shared machine
 * FAKE_GPU_COUNT       how many GPUs there are (default 0)
 * FAKE_GPU_MODEL       their name (default "NVIDIA Fake 16GB")
 * FAKE_GPU_MEMORY_MIB  their memory (default 16384)
 * FAKE_GPU_SM          their multiprocessors (default 80)
 * FAKE_GPU_CAPABILITY  their compute capability (default 7.0)
 * FAKE_GPU_DRIVER      version of the driver (default 550.54.15)
 * FAKE_GPU_CUDA        version of CUDA that the driver brings (default 12040)
 * FAKE_GPU_MIG         instances, such as "0:1g.10gb*3+3g.40gb,1:": MIG is on for the GPUs named, off for others
 * FAKE_GPU_CONTEXT_MIB memory that a context takes by itself (default 0)
 * FAKE_GPU_FAULT       "cuMemAlloc_v2:3:2": the third call of cuMemAlloc_v2 in a process fails with code 2, every call
 *                      where it is 0; more by commas
 * FAKE_GPU_PROCESSES   a file that NVML reads at each call: lines "gpu pid bytes per-cent" of processes beside the driver's
 * FAKE_GPU_QUERIES     a file to which the driver appends each query of its functions: "symbol,version,flags"
 * FAKE_GPU_INIT        the code that initialisation of NVML returns (default 0), such as 9 for a driver that is not loaded
 * FAKE_GPU_LOST        the index of a GPU that has fallen off the bus
 * FAKE_GPU_NVLINK      how many neighbouring GPUs NVLink joins (default 0: there is no NVLink)
 * FAKE_GPU_NUMA        how many neighbouring GPUs hang on one NUMA node (default: all of them)
 * FAKE_GPU_CORES       how many cores a NUMA node has (default 1)
 * FAKE_GPU_PIDS_FROM   added to the numbers of processes that NVML tells, as those of another namespace are others
 * FAKE_GPU_HIDDEN      1 where a virtual machine hides how it is built
 */
#ifndef MACHINE_H
#define MACHINE_H

#include <stdint.h>

#define MACHINE_GPUS 32
#define MACHINE_INSTANCES 8
#define MACHINE_PATH 512

typedef struct {
    char profile[16];
    unsigned slices;
    uint64_t memory_mib;
} machine_instance;

typedef struct {
    unsigned gpus, multiprocessors, capability_major, capability_minor, driver_major, cuda;
    uint64_t memory, context;
    const char *model, *driver;
    int init, lost, nvlink, numa, cores, hidden, pids_from;
    int slices_cost, streams_cost; /* thousandths of a shared moment; how many times as long a kernel beside another stream's takes */
    int mig[MACHINE_GPUS]; /* -1: not asked for, else how many instances there are */
    machine_instance instances[MACHINE_GPUS][MACHINE_INSTANCES];
} machine_settings;

/* Memory and work of one process on one GPU. */
typedef struct {
    int pid;
    uint64_t bytes;
    unsigned percent; /* of the last whole second that its kernels ran */
} machine_use;

const machine_settings *machine(void);

/* Looks at the machine of another file than FAKE_GPU_STATE names, for one that watches several. */
void machine_open(const char *path);

/* Takes memory for the calling process, or returns -1 where the GPU has not that much left. */
int machine_take(unsigned gpu, uint64_t bytes);
void machine_give(unsigned gpu, uint64_t bytes);
/* Lets the calling process take no more than so much of each GPU. */
void machine_bound(uint64_t bytes);
/* Lets its kernels run beside those of others, on so many per cent of each GPU (0 or 100: in one queue with all). What all have
 * together is taken to be no more than the GPU has. */
void machine_cores(unsigned percent);

/* What a GPU has; an instance of one counts its memory by itself, under a number of its own behind those of the GPUs, or -1
 * where that is too many. */
uint64_t machine_capacity(unsigned gpu);
int machine_instance_number(unsigned gpu, unsigned instance);
/* The GPU that an instance is a part of; a GPU itself. */
unsigned machine_card(unsigned gpu);

uint64_t machine_used(unsigned gpu);
/* What the calling process can still take. */
uint64_t machine_left(unsigned gpu);
/* The most that was ever used at one time. */
uint64_t machine_peak(unsigned gpu);
uint64_t machine_used_by_caller(unsigned gpu);

/* Lists the living processes that hold memory or have worked; returns how many there are, even if more than `most`. */
unsigned machine_processes(unsigned gpu, machine_use *list, unsigned most);

/* Queues a kernel behind those of the caller; returns what `machine_ends` takes, which grows from launch to launch. */
uint64_t machine_run(unsigned gpu, uint64_t duration);
/* When a kernel is done, in ns of CLOCK_MONOTONIC; while it is not, the first moment when it can be. */
uint64_t machine_ends(unsigned gpu, uint64_t moment);
/* ns that kernels of a process have run or will have run when the queue is empty. */
uint64_t machine_busy(unsigned gpu, int pid);
uint64_t machine_now(void);

/* Enters a process that is not one of the fake driver's, for as long as it lives. */
int machine_plant(int pid, unsigned gpu, uint64_t bytes, unsigned percent);

/* Limits of a control group, kept where the driver is 615 or newer; `get` returns -1 where there are none. */
int machine_limit(unsigned gpu, const char *group, uint64_t soft, uint64_t hard);
int machine_get_limit(unsigned gpu, const char *group, uint64_t *soft, uint64_t *hard, uint64_t *used);

/* The code with which this call of a function fails, or 0. */
int machine_fault(const char *function);

#endif
