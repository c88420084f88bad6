/* Memory that is shared by descriptors: whoever made it is charged until the last descriptor has gone, wherever it was sent.
 *
 * Who makes a descriptor puts a lock of its open file description on it and keeps another one for the same file, to ask
 * whether the lock is still there; the kernel drops it with the last descriptor of all processes. Who takes memory from a
 * descriptor keeps a copy of that as long as the memory. Where a file cannot be opened again nothing is kept, and what
 * descriptors hold there is uncounted. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "account.h"
#include "exports.h"
#include "fork.h"
#include "lock.h"

#ifndef F_OFD_SETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif

/* A descriptor of ours. Programs may close all that there are, so it is known by its file. */
struct own {
    int descriptor;
    dev_t device;
    ino_t inode;
};

struct probe {
    struct own own;
    off_t place;
    struct probe *next;
};

struct memory {
    uint64_t handle; /* 0: it has none any more */
    uint64_t bytes;
    int gpu;
    struct probe *probes;
    struct memory *next;
};

struct import {
    uint64_t handle;
    struct own own;
    struct import *next;
};

static pthread_mutex_t sharing = PTHREAD_MUTEX_INITIALIZER;
static struct memory *exported;
static struct import *imports;

/* What a child inherits belongs to its parent. */
static void after_fork_in_child(void)
{
    sharing = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    for (const struct import *each = imports; each; each = each->next)
        close(each->own.descriptor);
    exported = NULL;
    imports = NULL;
}

AT_FORK(.in_child = after_fork_in_child);

/* By the kernel's call, for newer headers make it a function that older C libraries do not have. */
static bool look_at(int descriptor, struct stat *status)
{
    return syscall(SYS_fstat, descriptor, status) == 0;
}

static struct own own_of(int descriptor)
{
    struct stat status = {0};
    look_at(descriptor, &status);
    return (struct own){descriptor, status.st_dev, status.st_ino};
}

static bool is_open(const struct own *own)
{
    struct stat status;
    return look_at(own->descriptor, &status) && status.st_dev == own->device && status.st_ino == own->inode;
}

static void close_own(const struct own *own)
{
    if (is_open(own))
        close(own->descriptor);
}

static struct flock lock_at(off_t place, short how)
{
    return (struct flock){.l_type = how, .l_whence = SEEK_SET, .l_start = place, .l_len = 1};
}

static bool is_held(const struct probe *probe)
{
    struct flock lock = lock_at(probe->place, F_WRLCK);
    return is_open(&probe->own) && fcntl(probe->own.descriptor, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* Other processes may lock places of the same file, so each place is one that nobody else has. */
static struct probe *new_probe(int descriptor)
{
    uint64_t place;
    char path[32];
    struct probe *made = calloc(1, sizeof *made);
    if (!made || syscall(SYS_getrandom, &place, sizeof place, 0) != sizeof place) {
        free(made);
        return NULL;
    }
    made->place = (off_t)(place >> 2);
    struct flock lock = lock_at(made->place, F_RDLCK);
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    int again = fcntl(descriptor, F_OFD_SETLK, &lock) == 0 ? open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY) : -1;
    if (again < 0) {
        free(made);
        return NULL;
    }
    made->own = own_of(again);
    return made;
}

/* The caller has the lock, as for all that follows. */
static struct memory *exported_as(uint64_t handle)
{
    struct memory *found = exported;
    while (found && found->handle != handle)
        found = found->next;
    return found;
}

static void forget_closed(struct memory *memory)
{
    for (struct probe **each = &memory->probes; *each;) {
        struct probe *probe = *each;
        if (is_held(probe)) {
            each = &probe->next;
            continue;
        }
        *each = probe->next;
        close_own(&probe->own);
        free(probe);
    }
}

static void forget(const struct memory *memory)
{
    for (struct memory **each = &exported; *each; each = &(*each)->next)
        if (*each == memory) {
            struct memory *found = *each;
            *each = found->next;
            free(found);
            return;
        }
}

void psg_exported(uint64_t handle, int descriptor)
{
    struct probe *probe = new_probe(descriptor);
    if (!probe)
        return;
    psg_lock(&sharing);
    struct memory *memory = exported_as(handle);
    if (!memory && (memory = calloc(1, sizeof *memory))) {
        *memory = (struct memory){.handle = handle, .next = exported};
        exported = memory;
    }
    if (memory) {
        probe->next = memory->probes;
        memory->probes = probe;
    } else {
        close_own(&probe->own);
        free(probe);
    }
    psg_unlock(&sharing);
}

bool psg_export_holds(uint64_t handle, int gpu, uint64_t bytes)
{
    psg_lock(&sharing);
    struct memory *memory = exported_as(handle);
    if (memory)
        forget_closed(memory);
    bool held = memory && memory->probes;
    if (held)
        memory->handle = 0, memory->gpu = gpu, memory->bytes = bytes;
    else if (memory)
        forget(memory);
    psg_unlock(&sharing);
    return held;
}

void psg_exports_reap(int gpu)
{
    psg_lock(&sharing);
    for (struct memory *each = exported, *next; each; each = next) {
        next = each->next;
        if (each->handle || each->gpu != gpu)
            continue;
        forget_closed(each);
        if (!each->probes) {
            psg_give(gpu, each->bytes);
            forget(each);
        }
    }
    psg_unlock(&sharing);
}

void psg_imported(uint64_t handle, int descriptor)
{
    int copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    struct import *made = copy < 0 ? NULL : calloc(1, sizeof *made);
    if (!made) {
        if (copy >= 0)
            close(copy);
        return;
    }
    psg_lock(&sharing);
    *made = (struct import){handle, own_of(copy), imports};
    imports = made;
    psg_unlock(&sharing);
}

void psg_import_gone(uint64_t handle)
{
    psg_lock(&sharing);
    for (struct import **each = &imports; *each;) {
        struct import *found = *each;
        if (found->handle != handle) {
            each = &found->next;
            continue;
        }
        *each = found->next;
        close_own(&found->own);
        free(found);
    }
    psg_unlock(&sharing);
}
