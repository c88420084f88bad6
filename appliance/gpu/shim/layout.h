/* The two files through which the agent and the processes of one container talk about GPU shares.
 *
 * limits   written by the agent only, read by the shim; a sequence that is odd while the agent writes (seqlock)
 * account  written by the shim of every process, read by the agent; a file of zeros behind the header is a valid start
 *
 * Both are mapped. All numbers are little-endian, times are nanoseconds of CLOCK_MONOTONIC, sizes are bytes.
 * GPU number i of the one file is number i of the other, and stays so as long as the container lives.
 */
#ifndef PSG_LAYOUT_H
#define PSG_LAYOUT_H

#include <stdint.h>

#define PSG_LIMITS_MAGIC "PSGPULIM" /* eight bytes without a final zero */
#define PSG_ACCOUNT_MAGIC "PSGPUACC"
#define PSG_VERSION 1u

#define PSG_GPUS 16
#define PSG_UUID 64
#define PSG_SLOTS 1023
#define PSG_INTERVALS 128

/* After so long a piece of work counts as one that may never end. */
#define PSG_ENDLESS UINT64_C(10000000000)

/* What a container may compute, psg_limit.compute. */
enum { PSG_COMPUTE_OFF = 0, PSG_COMPUTE_STRICT = 1, PSG_COMPUTE_FAIR = 2 };

/* Window n of a container is [epoch + n * period + offset, … + length), and offset + length <= period. Of two timetables
 * that one is valid which has the latest from_ns that has come; the agent writes a new plan over the other one, with a
 * from_ns at a boundary of the period. period_ns 0: no plan, launches are free. length_ns 0: no window in this plan.
 * The fallback is a third one, with a window for everybody, that an agent at work puts off again and again. */
struct psg_timetable {
    uint64_t from_ns;
    uint64_t epoch_ns;
    uint64_t period_ns;
    uint64_t offset_ns;
    uint64_t length_ns;
};

struct psg_limit {
    char uuid[PSG_UUID];   /* as NVML writes it, "GPU-…", ended by a zero */
    uint64_t memory_bytes; /* 0: no limit */
    uint32_t milli;        /* the share in thousandths of the GPU, for messages only */
    uint32_t compute;      /* PSG_COMPUTE_… */
    struct psg_timetable timetable[2];
};

struct psg_limits {
    char magic[8];
    uint32_t version;
    uint32_t sequence;
    uint32_t count;
    uint32_t reserved;
    struct psg_limit gpu[PSG_GPUS];
    struct psg_timetable fallback[PSG_GPUS]; /* the first files ended before these; zeros stand for none */
    uint64_t uncounted[PSG_GPUS]; /* bytes that processes hold and the account does not know of, as the agent sees them;
                                     the files before ended before these */
    int64_t lost_ns[PSG_GPUS];    /* of the time that processes counted as theirs, so much was that of other containers, in all;
                                     the files before ended before these */
    int64_t forgotten_ns[PSG_GPUS]; /* so much of what is owed to the container is forgotten, in all; what goes down is forgotten
                                       of its debt; the files before ended before these */
};

/* psg_total.used is one word that is only ever changed by compare-and-swap:
 * bits 0..43 the bytes in use, bits 44..53 the slot that made the last change plus one (0: nobody yet), bits 54..63 the
 * low bits of that slot's operation number. Whoever changes the word first marks that last operation as done, and so
 * nothing is ever lost or counted twice, wherever a process is killed. */
#define PSG_USED_BITS 44
#define PSG_USED_MASK ((UINT64_C(1) << PSG_USED_BITS) - 1)
#define PSG_SLOT_BITS 10
#define PSG_SLOT_MASK ((UINT64_C(1) << PSG_SLOT_BITS) - 1)
#define PSG_OPERATION_SHIFT (PSG_USED_BITS + PSG_SLOT_BITS)
#define PSG_OPERATION_MASK ((UINT64_C(1) << (64 - PSG_OPERATION_SHIFT)) - 1)

/* What a container does with one GPU. */
struct psg_total {
    uint64_t used;       /* see above; the agent reads used & PSG_USED_MASK */
    uint64_t launches;   /* admitted kernel and graph launches */
    uint64_t busy_ns;    /* time that launched work took, as far as the shim saw it (only where compute is not off) */
    uint64_t wanted_ns;  /* when a launch was last made or waited for; waiting threads renew it every period */
    int64_t debt_ns;     /* time computed outside of windows, not yet paid back */
    uint64_t until_ns;   /* up to when busy_ns has been counted, so that processes at work together count once */
    uint64_t overrun_ns; /* up to when debt_ns has been counted */
    uint64_t refused;    /* allocations that the limit refused */
    uint64_t opens_ns;   /* before when no launch of the container is admitted: debt that is being paid back */
    uint64_t context;    /* bytes that a context of its own takes on this GPU, the least that was measured; 0: not known */
    uint64_t measured;   /* how often `context` was measured */
    uint64_t owed_ns;    /* time that was lost to neighbours, not yet made up for */
    uint64_t endless_ns; /* when work was last seen that had been running for PSG_ENDLESS; 0: never */
    int64_t settled_ns;  /* so much of psg_limits.lost_ns has been settled */
    int64_t forgotten_ns; /* so much of psg_limits.forgotten_ns has been forgotten */
    uint64_t reserved[1];
};

/* What one process holds on one GPU: bytes[operations & 1]; the other place takes the value of the operation that comes
 * next, written before psg_total.used is changed. operations never goes back, whoever owns the slot. */
struct psg_balance {
    uint64_t operations;
    uint64_t bytes[2];
};

/* A slot belongs to a process as long as that holds the open-file-description lock on the slot's first byte in the file;
 * the kernel drops it when the process ends, however it ends. The lock counts, pid and start are for readers. */
struct psg_slot {
    uint32_t pid; /* as the process sees itself in its pid namespace; 0: free */
    uint32_t uid;
    uint64_t start; /* field 22 of /proc/PID/stat: clock ticks after boot, the same in every pid namespace */
    uint64_t reserved[6];
    struct psg_balance gpu[PSG_GPUS];
};

/* A time in which a process had work on a GPU, with pauses of less than a millisecond; it may still grow. */
struct psg_interval {
    uint64_t number; /* from 1 on, in the order of their beginnings; 0: it is being written */
    uint64_t from_ns, to_ns;
    uint64_t busy_ns; /* without the pauses */
    uint64_t slot;    /* of the process */
};

/* The last ones, number n at place n % PSG_INTERVALS. The agent finds out by them what containers lost to each other. */
struct psg_log {
    uint64_t begun;
    uint64_t reserved[7];
    struct psg_interval interval[PSG_INTERVALS];
};

struct psg_account {
    char magic[8];
    uint32_t version;
    uint32_t count; /* GPUs, as in the limits */
    uint32_t slots; /* PSG_SLOTS */
    uint32_t high;  /* slots below this number have been in use */
    uint64_t reserved[5];
    struct psg_total gpu[PSG_GPUS];
    struct psg_slot slot[PSG_SLOTS];
    struct psg_log log[PSG_GPUS]; /* the first files ended before these */
};

#endif
