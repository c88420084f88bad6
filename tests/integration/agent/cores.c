/* Says how many cores the C library counts: those that are online, and those that this process may use. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed))
        return 1;
    printf("%ld %d\n", sysconf(_SC_NPROCESSORS_ONLN), CPU_COUNT(&allowed));
    return 0;
}
