/* The driver's own functions: found by name, and where an older driver has another name for one, by its own resolver. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "driver.h"
#include "fork.h"
#include "library.h"
#include "lock.h"

static pthread_mutex_t publishing = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool loaded;

struct psg_driver psg_driver;
__thread int psg_depth;

static void after_fork_in_child(void)
{
    publishing = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

AT_FORK(.in_child = after_fork_in_child);

struct question {
    const char *symbol;
    const char *base;
    size_t offset;
    int since;
    cuuint64_t flags;
};

static const struct question questions[] = {
#define HOOK(symbol, base, since, flags) {#symbol, base, offsetof(struct psg_driver, symbol), since, flags},
#define ALSO HOOK
#include "hooks.def"
#undef HOOK
#undef ALSO
};

enum { QUESTIONS = sizeof questions / sizeof *questions };

/* What a library answered. It is asked without a lock of ours, for the dynamic linker has one that it holds while it runs
 * constructors, and these may come here; two threads may so ask the same. */
struct answers {
    struct psg_driver driver;
    void *linked[QUESTIONS];
    void *asked[QUESTIONS];
};

static struct answers known;

static void *ask(const struct psg_driver *driver, const struct question *question)
{
    void *function = NULL;
    CUdriverProcAddressQueryResult status;
    CUresult result = CUDA_ERROR_NOT_FOUND;
    if (driver->cuGetProcAddress_v2)
        result = driver->cuGetProcAddress_v2(question->base, &function, question->since, question->flags, &status);
    else if (driver->cuGetProcAddress)
        result = driver->cuGetProcAddress(question->base, &function, question->since, question->flags);
    return result == CUDA_SUCCESS ? function : NULL;
}

/* An older driver answers for the version that it has, which is another function of ours. */
static bool is_linked(const struct answers *answers, const void *function)
{
    for (int i = 0; i < QUESTIONS; i++)
        if (answers->linked[i] == function)
            return true;
    return false;
}

static void fill(struct answers *answers, void *library)
{
    struct psg_driver *driver = &answers->driver;
    for (int i = 0; i < QUESTIONS; i++) {
        answers->linked[i] = psg_find_symbol(library, questions[i].symbol);
        memcpy((char *)driver + questions[i].offset, &answers->linked[i], sizeof(void *));
    }
#define USE(symbol) driver->symbol = (__typeof__(&symbol))psg_find_symbol(library, #symbol);
    PSG_USED_FUNCTIONS(USE)
#undef USE
    for (int i = 0; i < QUESTIONS; i++) {
        answers->asked[i] = ask(driver, &questions[i]);
        if (!answers->linked[i] && answers->asked[i] && !is_linked(answers, answers->asked[i]))
            memcpy((char *)driver + questions[i].offset, &answers->asked[i], sizeof(void *));
    }
}

/* False: another library has become the driver already. */
static bool use(void *library)
{
    struct answers answers = {0};
    psg_depth++;
    fill(&answers, library);
    psg_depth--;
    psg_lock(&publishing);
    bool first = !atomic_load_explicit(&loaded, memory_order_relaxed);
    if (first) {
        known = answers;
        psg_driver = answers.driver;
        atomic_store_explicit(&loaded, true, memory_order_release);
    }
    psg_unlock(&publishing);
    return first;
}

static bool load(bool needed)
{
    if (atomic_load_explicit(&loaded, memory_order_acquire))
        return true;
    psg_depth++;
    void *library = psg_library("libcuda.so.1", needed);
    psg_depth--;
    if (library)
        use(library);
    return library;
}

bool psg_driver_adopt(void *library)
{
    return !load(false) && use(library);
}

bool psg_driver_has(const void *function)
{
    return psg_same_library(function, (void *)psg_driver.cuInit);
}

bool psg_driver_load(void)
{
    return load(true);
}

bool psg_driver_loaded(void)
{
    return load(false);
}

void psg_driver_each(void (*each)(unsigned hook, void *real))
{
    for (unsigned i = 0; i < QUESTIONS; i++)
        each(i, known.linked[i]);
    for (unsigned i = 0; i < QUESTIONS; i++)
        each(i, known.asked[i]);
}
