/* Other libraries and their functions, past our own. */
#ifndef PSG_LIBRARY_H
#define PSG_LIBRARY_H

#include "shim.h"

/* glibc moved the functions of libdl into libc under a new version; the first version is in every glibc. */
#if defined(__aarch64__)
#define FIRST_GLIBC "GLIBC_2.17"
#else
#define FIRST_GLIBC "GLIBC_2.2.5"
#endif

typedef void *(*psg_finder)(void *library, const char *name);

/* Sanitizers look up functions before they are ready for checked code. */
#define EARLY __attribute__((no_sanitize("address", "undefined", "thread")))

/* The C library's own dlsym, which ours stands before. */
EARLY psg_finder psg_next_dlsym(void);

/* Its dlopen. */
EARLY void *psg_next_dlopen(void);

/* dlsym without our own: the next definition after this library. */
void *psg_find_symbol(void *library, const char *name);

/* Whether two functions are of the same library. */
bool psg_same_library(const void *one, const void *other);

/* A library that is loaded, or that can be loaded where `load` is true; null else. */
void *psg_library(const char *name, bool load);

#endif
