/* A client of the multi-process service: its limits, and what it hears when its server is gone or has a fault.
 *
 * It asks the control daemon where CUDA_MPS_PIPE_DIRECTORY leads for a server, and hangs on that from then on. A process that
 * finds no daemon works without one, and without any limit. All as on a card (H200, driver 580.159). */
#define _GNU_SOURCE
#include "driver.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* What a server says, and a client of a fault of its own; WORK is followed by when all that it launched will have ended. */
enum { READY = 'R', FAULT_OF_ONE = 'F', TERMINATED = 'T', WORK = 'W' };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int server = -1;
static atomic_int broken; /* the code with which all calls fail from now on */

static int reach(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (strlen(path) >= sizeof at.sun_path)
        return -1;
    strcpy(at.sun_path, path);
    if (connect(made, (struct sockaddr *)&at, sizeof at) == 0 && send(made, "client", 6, MSG_NOSIGNAL) == 6)
        return made;
    close(made);
    return -1;
}

/* The daemon answers once there is a server for this user: it may have to wait for the clients of another one. */
static void meet(void)
{
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY"), *limit = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"),
               *cores = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    char path[512], said = 0;
    unsigned long long mib;
    int daemon;
    if (folder == NULL || snprintf(path, sizeof path, "%s/control", folder) >= (int)sizeof path || (daemon = reach(path)) < 0)
        return;
    ssize_t length = recv(daemon, path, sizeof path - 1, 0);
    close(daemon);
    path[length > 0 ? length : 0] = '\0';
    server = length > 0 ? reach(path) : -1;
    if (server < 0)
        broken = CUDA_ERROR_MPS_CONNECTION_FAILED;
    else if (recv(server, &said, 1, 0) != 1 || said != READY)
        broken = CUDA_ERROR_MPS_SERVER_NOT_READY;
    if (limit != NULL && sscanf(limit, "0=%lluM", &mib) == 1)
        machine_bound(mib << 20);
    machine_cores(cores != NULL ? (unsigned)atoi(cores) : 0);
}

int driver_broken(void)
{
    char byte;
    pthread_once(&once, meet);
    if (broken == 0 && server >= 0 && recv(server, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1)
        broken = byte == TERMINATED ? CUDA_ERROR_MPS_CLIENT_TERMINATED : CUDA_ERROR_ILLEGAL_ADDRESS;
    return broken;
}

/* Who only takes memory and launches does not notice that there is no server any more. */
int driver_server_gone(void)
{
    char byte;
    return server >= 0 && recv(server, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0 ? CUDA_ERROR_MPS_RPC_FAILURE : 0;
}

static void say(char what, uint64_t number)
{
    char record[1 + sizeof number] = {what};
    memcpy(record + 1, &number, sizeof number);
    if (server >= 0)
        send(server, record, sizeof record, MSG_NOSIGNAL);
}

void driver_in_flight(uint64_t until)
{
    say(WORK, until);
}

void driver_wrong_address(void)
{
    broken = CUDA_ERROR_ILLEGAL_ADDRESS;
    say(FAULT_OF_ONE, 0);
}
