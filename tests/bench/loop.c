/* Counts for a while and prints the ns that it took: by the clock on the wall, and of a core's time. */
#include <stdio.h>
#include <time.h>

static unsigned long long now(clockid_t clock)
{
    struct timespec at;
    clock_gettime(clock, &at);
    return (unsigned long long)at.tv_sec * 1000000000ULL + (unsigned long long)at.tv_nsec;
}

int main(void)
{
    volatile unsigned long long sum = 0;
    unsigned long long wall = now(CLOCK_MONOTONIC), core = now(CLOCK_PROCESS_CPUTIME_ID);
    for (unsigned long long step = 0; step < 60000000ULL; step++)
        sum += step;
    printf("%llu %llu\n", now(CLOCK_MONOTONIC) - wall, now(CLOCK_PROCESS_CPUTIME_ID) - core);
    return 0;
}
