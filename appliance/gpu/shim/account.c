/* The account of this container: who has taken how many bytes of which GPU.
 *
 * No lock is held between processes. An operation is written into the slot first, then the one compare-and-swap on
 * psg_total.used makes it so, then it is marked as done; whoever comes next marks it if its maker was stopped or killed
 * there. So at every moment the total is the sum of all slots, and a slot whose process is gone can be emptied by anybody. */
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "account.h"
#include "fork.h"
#include "limits.h"
#include "lock.h"
#include "process.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif
#ifndef F_OFD_SETLK
#define F_OFD_SETLK 37
#endif

/* Stands on a page that a child finds empty after fork, and so knows that it owns nothing. */
struct process {
    struct psg_account *account;
    int slot;  /* plus one; 0: none yet */
    bool logs; /* the file has a place for them */
};

static pthread_mutex_t registering = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t balancing[PSG_GPUS] = {[0 ... PSG_GPUS - 1] = PTHREAD_MUTEX_INITIALIZER};
static struct process *process;
static int opened = -1;
static bool refused;
static bool said;

static size_t lock_offset(int slot)
{
    return offsetof(struct psg_account, slot) + (size_t)slot * sizeof(struct psg_slot);
}

static bool lock_slot(int file, int slot, short how)
{
    struct flock lock = {.l_type = how, .l_whence = SEEK_SET, .l_start = (off_t)lock_offset(slot), .l_len = 1};
    return fcntl(file, F_OFD_SETLK, &lock) == 0;
}

static int open_account(void)
{
    const char *path = psg_account_path();
    return path ? open(path, O_RDWR | O_CLOEXEC) : -1;
}

/* Operations ------------------------------------------------------------------------------------------------------ */

static void finish_last(struct psg_account *account, int gpu, uint64_t word)
{
    uint64_t slot = (word >> PSG_USED_BITS) & PSG_SLOT_MASK;
    if (slot == 0)
        return;
    uint64_t *operations = &account->slot[slot - 1].gpu[gpu].operations;
    uint64_t done = __atomic_load_n(operations, __ATOMIC_SEQ_CST);
    /* Only while the word still stands can the slot be no further than this operation. */
    if (__atomic_load_n(&account->gpu[gpu].used, __ATOMIC_SEQ_CST) == word &&
        ((done + 1) & PSG_OPERATION_MASK) == word >> PSG_OPERATION_SHIFT)
        __atomic_compare_exchange_n(operations, &done, done + 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* Adds `more` and takes away `less` from what a slot holds, if the container then holds `limit` at most. */
static bool change(struct psg_account *account, int slot, int gpu, uint64_t more, uint64_t less, uint64_t limit)
{
    struct psg_balance *balance = &account->slot[slot].gpu[gpu];
    uint64_t *used = &account->gpu[gpu].used;
    uint64_t number = __atomic_load_n(&balance->operations, __ATOMIC_SEQ_CST);
    uint64_t held = __atomic_load_n(&balance->bytes[number & 1], __ATOMIC_SEQ_CST);
    less = less < held ? less : held;
    __atomic_store_n(&balance->bytes[(number + 1) & 1], held + more - less, __ATOMIC_SEQ_CST);
    uint64_t word = __atomic_load_n(used, __ATOMIC_SEQ_CST);
    for (;;) {
        finish_last(account, gpu, word);
        uint64_t bytes = word & PSG_USED_MASK;
        if (more && (more > PSG_USED_MASK || bytes + more > PSG_USED_MASK || bytes + more > limit))
            return false;
        bytes = bytes + more > less ? bytes + more - less : 0;
        uint64_t next = ((number + 1) & PSG_OPERATION_MASK) << PSG_OPERATION_SHIFT |
                        ((uint64_t)slot + 1) << PSG_USED_BITS | bytes;
        if (__atomic_compare_exchange_n(used, &word, next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
            __atomic_compare_exchange_n(&balance->operations, &number, number + 1, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST);
            return true;
        }
    }
}

static uint64_t holds(struct psg_account *account, int slot, int gpu)
{
    finish_last(account, gpu, __atomic_load_n(&account->gpu[gpu].used, __ATOMIC_SEQ_CST));
    struct psg_balance *balance = &account->slot[slot].gpu[gpu];
    uint64_t number = __atomic_load_n(&balance->operations, __ATOMIC_SEQ_CST);
    return __atomic_load_n(&balance->bytes[number & 1], __ATOMIC_SEQ_CST);
}

/* The caller has the slot's lock. */
static void empty(struct psg_account *account, int slot)
{
    for (int gpu = 0; gpu < (int)psg_gpus(); gpu++) {
        uint64_t bytes = holds(account, slot, gpu);
        if (bytes)
            change(account, slot, gpu, 0, bytes, UINT64_MAX);
    }
    __atomic_store_n(&account->slot[slot].pid, 0, __ATOMIC_SEQ_CST);
}

/* Slots ----------------------------------------------------------------------------------------------------------- */

static bool claim(struct psg_account *account, int file, int slot)
{
    if (!lock_slot(file, slot, F_WRLCK))
        return false;
    if (account->slot[slot].pid && psg_still_dying(account->slot[slot].pid, account->slot[slot].start)) {
        lock_slot(file, slot, F_UNLCK);
        return false;
    }
    uint32_t high = __atomic_load_n(&account->high, __ATOMIC_SEQ_CST);
    while (high <= (uint32_t)slot && !__atomic_compare_exchange_n(&account->high, &high, (uint32_t)slot + 1, false,
                                                                  __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
    empty(account, slot);
    account->slot[slot].uid = getuid();
    account->slot[slot].start = psg_started();
    __atomic_store_n(&account->slot[slot].pid, (uint32_t)getpid(), __ATOMIC_SEQ_CST);
    return true;
}

/* Free slots first, then those whose processes are gone: with the lock, the kernel says which these are. */
static int find_slot(struct psg_account *account, int file)
{
    for (int pass = 0; pass < 2; pass++)
        for (int slot = 0; slot < PSG_SLOTS; slot++)
            if ((pass == 1 || __atomic_load_n(&account->slot[slot].pid, __ATOMIC_RELAXED) == 0) &&
                claim(account, file, slot))
                return slot + 1;
    return 0;
}

static void before_fork(void)
{
    psg_lock(&registering);
}

static void after_fork_in_parent(void)
{
    psg_unlock(&registering);
}

static void after_fork_in_child(void)
{
    psg_unlock(&registering);
    registering = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    for (int gpu = 0; gpu < PSG_GPUS; gpu++)
        balancing[gpu] = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    if (opened >= 0) {
        close(opened);
        opened = -1;
    }
    if (process)
        memset(process, 0, sizeof *process);
}

AT_FORK(.before = before_fork, .in_parent = after_fork_in_parent, .in_child = after_fork_in_child);

static bool prepare(void)
{
    if (process)
        return true;
    void *page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return false;
    madvise(page, (size_t)sysconf(_SC_PAGESIZE), MADV_WIPEONFORK);
    psg_watch_forks();
    __atomic_store_n(&process, page, __ATOMIC_RELEASE);
    return true;
}

static bool valid(const struct psg_account *account)
{
    return memcmp(account->magic, PSG_ACCOUNT_MAGIC, sizeof account->magic) == 0 && account->version == PSG_VERSION &&
           account->slots == PSG_SLOTS && account->count == psg_gpus();
}

/* The lock of a slot lives as long as the open file, and that as long as the mapping: the descriptor can be closed, and
 * no program closes the lock by accident. A child does not get the mapping, or it would keep its parent's slot alive. */
static bool map_account(void)
{
    opened = open_account();
    if (opened < 0)
        return false;
    off_t size = lseek(opened, 0, SEEK_END);
    if (size < (off_t)offsetof(struct psg_account, log)) {
        refused = true;
        return false;
    }
    struct psg_account *account =
        mmap(NULL, sizeof *account, PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
    if (account == MAP_FAILED)
        return false;
    if (madvise(account, sizeof *account, MADV_DONTFORK) != 0 || !valid(account)) {
        refused = true;
        munmap(account, sizeof *account);
        return false;
    }
    process->logs = size >= (off_t)sizeof *account;
    __atomic_store_n(&process->account, account, __ATOMIC_RELEASE);
    return true;
}

static struct psg_account *account_of_process(bool with_slot)
{
    struct process *self = __atomic_load_n(&process, __ATOMIC_ACQUIRE);
    struct psg_account *account = self ? __atomic_load_n(&self->account, __ATOMIC_ACQUIRE) : NULL;
    if (account && (!with_slot || __atomic_load_n(&self->slot, __ATOMIC_ACQUIRE)))
        return account;
    if (!psg_limits_readable())
        return NULL;
    psg_lock(&registering);
    if (prepare() && !refused) {
        /* A slot needs an open file of its own, and so a mapping of its own. */
        bool mapped = process->account || map_account();
        if (mapped && with_slot && !process->slot) {
            if (opened < 0)
                mapped = map_account();
            if (mapped)
                __atomic_store_n(&process->slot, find_slot(process->account, opened), __ATOMIC_RELEASE);
        }
        if (opened >= 0) {
            close(opened);
            opened = -1;
        }
        if (!mapped || (with_slot && !process->slot)) {
            /* What is wrong with the file stays so; that there was no descriptor for it just now does not. */
            refused = refused || mapped;
            if (!said)
                psg_say("the account of this container cannot be used; CUDA is refused. Start the session again.");
            said = true;
        }
    }
    account = process && (!with_slot || process->slot) ? process->account : NULL;
    psg_unlock(&registering);
    return account;
}

bool psg_registered(void)
{
    return account_of_process(true) != NULL;
}

void psg_reap(void)
{
    struct psg_account *account = account_of_process(false);
    int file = account ? open_account() : -1;
    if (file < 0)
        return;
    uint32_t high = __atomic_load_n(&account->high, __ATOMIC_SEQ_CST);
    for (int slot = 0; slot < (int)high && slot < PSG_SLOTS; slot++) {
        if (slot + 1 == __atomic_load_n(&process->slot, __ATOMIC_ACQUIRE) ||
            !__atomic_load_n(&account->slot[slot].pid, __ATOMIC_SEQ_CST))
            continue;
        if (lock_slot(file, slot, F_WRLCK)) {
            if (!psg_still_dying(account->slot[slot].pid, account->slot[slot].start))
                empty(account, slot);
            lock_slot(file, slot, F_UNLCK);
        }
    }
    close(file);
}

/* What others ask -------------------------------------------------------------------------------------------------- */

struct psg_total *psg_total(int gpu)
{
    struct psg_account *account = account_of_process(false);
    return account ? &account->gpu[gpu] : NULL;
}

struct psg_log *psg_log(int gpu, uint64_t *slot)
{
    struct psg_account *account = account_of_process(true);
    *slot = account ? (uint64_t)process->slot : 0;
    return account && process->logs ? &account->log[gpu] : NULL;
}

uint64_t psg_used(int gpu)
{
    struct psg_total *total = psg_total(gpu);
    return total ? __atomic_load_n(&total->used, __ATOMIC_SEQ_CST) & PSG_USED_MASK : 0;
}

static bool change_own(struct psg_account *account, int gpu, uint64_t more, uint64_t less)
{
    uint64_t limit = psg_memory_limit(gpu), counts = limit - smaller(psg_uncounted(gpu), limit);
    psg_lock(&balancing[gpu]);
    bool done = change(account, process->slot - 1, gpu, more, less, limit == UINT64_MAX ? limit : counts);
    psg_unlock(&balancing[gpu]);
    return done;
}

bool psg_take(int gpu, uint64_t bytes)
{
    struct psg_account *account = account_of_process(true);
    if (!account)
        return false;
    if (bytes == 0 || change_own(account, gpu, bytes, 0))
        return true;
    psg_reap();
    return change_own(account, gpu, bytes, 0);
}

void psg_give(int gpu, uint64_t bytes)
{
    struct psg_account *account = account_of_process(true);
    if (account && bytes)
        change_own(account, gpu, 0, bytes);
}

uint64_t psg_held(int gpu)
{
    return psg_used(gpu) + psg_uncounted(gpu);
}

void psg_count_refusal(int gpu)
{
    struct psg_total *total = psg_total(gpu);
    if (total)
        __atomic_fetch_add(&total->refused, 1, __ATOMIC_RELAXED);
}

unsigned psg_holders(int gpu, struct psg_holder *holders, unsigned most)
{
    struct psg_account *account = account_of_process(false);
    if (!account)
        return 0;
    psg_reap();
    unsigned found = 0;
    uint32_t high = __atomic_load_n(&account->high, __ATOMIC_SEQ_CST);
    for (int slot = 0; slot < (int)high && slot < PSG_SLOTS; slot++) {
        uint32_t pid = __atomic_load_n(&account->slot[slot].pid, __ATOMIC_SEQ_CST);
        uint64_t bytes = pid ? holds(account, slot, gpu) : 0;
        if (!bytes)
            continue;
        if (found < most)
            holders[found] = (struct psg_holder){pid, bytes};
        found++;
    }
    return found;
}

bool psg_is_ours(uint32_t pid)
{
    struct psg_account *account = pid ? account_of_process(false) : NULL;
    uint32_t high = account ? __atomic_load_n(&account->high, __ATOMIC_SEQ_CST) : 0;
    for (uint32_t slot = 0; slot < high && slot < PSG_SLOTS; slot++)
        if (__atomic_load_n(&account->slot[slot].pid, __ATOMIC_SEQ_CST) == pid)
            return true;
    return false;
}
