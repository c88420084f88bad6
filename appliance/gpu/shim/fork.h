/* What a module does before and after a fork of the process.
 *
 * Each module registers for itself, in a section that the linker lines up: so fork.c knows no module, and none of our code
 * runs at the start of a process. */
#ifndef PSG_FORK_H
#define PSG_FORK_H

#include "shim.h"

/* Any of the three may be null. What another thread was changing at the moment of a fork is left alone in the child. */
struct psg_fork {
    void (*before)(void);
    void (*in_parent)(void);
    void (*in_child)(void);
};

/* Once in a module. The list is one of pointers, for the compiler may pad things, but no pointers. */
#define AT_FORK(...)                                             \
    static const struct psg_fork at_fork = {__VA_ARGS__};        \
    static const struct psg_fork *const at_fork_listed __attribute__((section("psg_at_fork"), used)) = &at_fork

/* Begins to call what is registered; to be called once in a process, before it has anything that a child must not have. */
void psg_watch_forks(void);

#endif
