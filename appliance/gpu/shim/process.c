/* Processes, as /proc shows them. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "process.h"

/* What /proc tells of a process, by the numbers of proc(5). */
struct status {
    char state;       /* 3 */
    uint64_t threads; /* 20 */
    uint64_t start;   /* 22 */
    uint64_t size;    /* 23: 0 when it has lost its memory, at its end */
};

/* Not strtoull, for newer headers make it a function that older C libraries do not have. */
static uint64_t digits(const char *text)
{
    uint64_t value = 0;
    while (*text >= '0' && *text <= '9')
        value = 10 * value + (uint64_t)(*text++ - '0');
    return value;
}

static bool read_status(const char *path, struct status *status)
{
    char text[1024];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    if (length <= 0)
        return false;
    text[length] = 0;
    /* The name of the program may hold blanks and brackets; field 3 follows its last bracket. */
    char *at = strrchr(text, ')');
    if (!at || at[1] != ' ')
        return false;
    *status = (struct status){.state = at[2]};
    at += 2;
    for (int field = 4; (at = strchr(at, ' ')) != NULL && field <= 23; field++) {
        at++;
        uint64_t value = digits(at);
        if (field == 20)
            status->threads = value;
        else if (field == 22)
            status->start = value;
        else if (field == 23)
            status->size = value;
    }
    return true;
}

uint64_t psg_started(void)
{
    struct status status;
    return read_status("/proc/self/stat", &status) ? status.start : 0;
}

bool psg_still_dying(uint32_t pid, uint64_t start)
{
    char path[32];
    struct status status;
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    if (!read_status(path, &status) || status.start != start || status.size)
        return false;
    return (status.state != 'Z' && status.state != 'X') || status.threads > 1;
}
