/* The machine's settings, read from the environment, and the faults that it injects. */
#include "machine.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAULTS 16

typedef struct {
    char function[64];
    unsigned call;
    int code;
    atomic_uint seen;
} fault;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static machine_settings settings;
static fault faults[FAULTS];
static unsigned fault_count;

static int number(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    return text ? atoi(text) : otherwise;
}

static const char *word(const char *variable, const char *otherwise)
{
    const char *text = getenv(variable);
    return text ? strdup(text) : otherwise;
}

static void add_instances(unsigned gpu, char *profiles)
{
    char *place = NULL;
    settings.mig[gpu] = 0;
    for (char *each = strtok_r(profiles, "+", &place); each; each = strtok_r(NULL, "+", &place)) {
        unsigned slices, gigabytes, times = 1;
        if (sscanf(each, "%ug.%ugb*%u", &slices, &gigabytes, &times) < 2)
            continue;
        for (; times > 0 && settings.mig[gpu] < MACHINE_INSTANCES; times--) {
            machine_instance *made = &settings.instances[gpu][settings.mig[gpu]++];
            snprintf(made->profile, sizeof made->profile, "%ug.%ugb", slices, gigabytes);
            made->slices = slices;
            made->memory_mib = gigabytes * 1024ULL - 512; /* as an A100 keeps half a gibibyte of a slice for itself */
        }
    }
}

static void read_instances(void)
{
    char *text = strdup(word("FAKE_GPU_MIG", "")), *place = NULL;
    for (unsigned gpu = 0; gpu < MACHINE_GPUS; gpu++)
        settings.mig[gpu] = -1;
    for (char *each = strtok_r(text, ",", &place); each; each = strtok_r(NULL, ",", &place)) {
        char *profiles = strchr(each, ':');
        unsigned gpu = (unsigned)atoi(each);
        if (profiles != NULL && gpu < MACHINE_GPUS)
            add_instances(gpu, profiles + 1);
    }
    free(text);
}

static void read_faults(void)
{
    char *text = strdup(word("FAKE_GPU_FAULT", "")), *place = NULL;
    for (char *each = strtok_r(text, ",", &place); each && fault_count < FAULTS; each = strtok_r(NULL, ",", &place)) {
        fault *made = &faults[fault_count];
        if (sscanf(each, "%63[^:]:%u:%d", made->function, &made->call, &made->code) == 3)
            fault_count++;
    }
    free(text);
}

static void read_all(void)
{
    int gpus = number("FAKE_GPU_COUNT", 0);
    settings.gpus = gpus < MACHINE_GPUS ? (unsigned)gpus : MACHINE_GPUS;
    settings.model = word("FAKE_GPU_MODEL", "NVIDIA Fake 16GB");
    settings.memory = (uint64_t)number("FAKE_GPU_MEMORY_MIB", 16384) << 20;
    settings.multiprocessors = (unsigned)number("FAKE_GPU_SM", 80);
    sscanf(word("FAKE_GPU_CAPABILITY", "7.0"), "%u.%u", &settings.capability_major, &settings.capability_minor);
    settings.driver = word("FAKE_GPU_DRIVER", "550.54.15");
    settings.driver_major = (unsigned)atoi(settings.driver);
    settings.cuda = (unsigned)number("FAKE_GPU_CUDA", 12040);
    settings.context = (uint64_t)number("FAKE_GPU_CONTEXT_MIB", 0) << 20;
    settings.init = number("FAKE_GPU_INIT", 0);
    settings.lost = number("FAKE_GPU_LOST", -1);
    settings.nvlink = number("FAKE_GPU_NVLINK", 0);
    settings.numa = number("FAKE_GPU_NUMA", MACHINE_GPUS);
    settings.cores = number("FAKE_GPU_CORES", 1);
    settings.hidden = number("FAKE_GPU_HIDDEN", 0);
    settings.slices_cost = number("FAKE_GPU_SLICES_COST", 0);
    settings.streams_cost = number("FAKE_GPU_STREAMS_COST", 1);
    settings.pids_from = number("FAKE_GPU_PIDS_FROM", 0);
    read_instances();
    read_faults();
}

const machine_settings *machine(void)
{
    pthread_once(&once, read_all);
    return &settings;
}

int machine_instance_number(unsigned gpu, unsigned instance)
{
    unsigned number = machine()->gpus + gpu * MACHINE_INSTANCES + instance;
    return gpu < machine()->gpus && (int)instance < machine()->mig[gpu] && number < MACHINE_GPUS ? (int)number : -1;
}

unsigned machine_card(unsigned gpu)
{
    return gpu < machine()->gpus ? gpu : (gpu - machine()->gpus) / MACHINE_INSTANCES;
}

uint64_t machine_capacity(unsigned gpu)
{
    unsigned behind = gpu - machine()->gpus;
    return gpu < machine()->gpus ? machine()->memory
                                 : machine()->instances[behind / MACHINE_INSTANCES][behind % MACHINE_INSTANCES].memory_mib << 20;
}

int machine_fault(const char *function)
{
    machine();
    for (unsigned index = 0; index < fault_count; index++)
        if (strcmp(faults[index].function, function) == 0 &&
            (faults[index].call == 0 || atomic_fetch_add(&faults[index].seen, 1) + 1 == faults[index].call))
            return faults[index].code;
    return 0;
}
