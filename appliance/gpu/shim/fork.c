/* Calls what modules have registered for a fork. */
#include <pthread.h>

#include "fork.h"

/* Both ends of the section, which the linker names. */
extern const struct psg_fork *const __start_psg_at_fork[] __attribute__((visibility("hidden")));
extern const struct psg_fork *const __stop_psg_at_fork[] __attribute__((visibility("hidden")));

#define CALLS(name, handler)                                                         \
    static void name(void)                                                           \
    {                                                                                \
        for (const struct psg_fork *const *at = __start_psg_at_fork; at < __stop_psg_at_fork; at++) \
            if ((*at)->handler)                                                      \
                (*at)->handler();                                                    \
    }

CALLS(before_fork, before)
CALLS(after_fork_in_parent, in_parent)
CALLS(after_fork_in_child, in_child)

void psg_watch_forks(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}
