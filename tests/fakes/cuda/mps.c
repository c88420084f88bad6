/* A client of the multi-process service: its limit, and what it hears when its daemon is gone.
 *
 * A process that finds no daemon where CUDA_MPS_PIPE_DIRECTORY leads works without one, and without any limit, as on a card. */
#define _GNU_SOURCE
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int service = -1;
static int lost;

static void meet(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY"), *limit = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    unsigned long long mib;
    if (folder == NULL || strlen(folder) > sizeof at.sun_path - sizeof "/control")
        return;
    strcat(strcpy(at.sun_path, folder), "/control");
    service = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(service, (struct sockaddr *)&at, sizeof at) != 0) {
        close(service);
        service = -1;
    } else if (limit != NULL && sscanf(limit, "0=%lluM", &mib) == 1) {
        /* contexts count on top */
        machine_bound((mib << 20) + machine()->context);
    }
}

int driver_mps(void)
{
    char byte;
    pthread_once(&once, meet);
    if (service >= 0 && recv(service, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
        lost = 1;
    return lost ? CUDA_ERROR_MPS_RPC_FAILURE : 0;
}
