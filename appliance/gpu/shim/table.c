/* What this process has taken and not yet given back: one table of things by kind and key. */
#include <pthread.h>
#include <stdlib.h>

#include "fork.h"
#include "lock.h"
#include "table.h"

#define SHARDS 16u
#define FIRST_SIZE 64u

struct shard {
    pthread_mutex_t lock;
    struct psg_entry *entries;
    size_t size; /* a power of two */
    size_t used;
};

static struct shard shards[SHARDS] = {[0 ... SHARDS - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

static uint64_t hash(uint16_t kind, uint64_t key)
{
    uint64_t mixed = (key ^ (uint64_t)kind << 56) * UINT64_C(0x9E3779B97F4A7C15);
    return mixed ^ mixed >> 29;
}

static struct shard *shard_of(uint64_t code)
{
    return &shards[code >> 60 & (SHARDS - 1)];
}

/* The place of a thing, or the free place where it belongs. */
static size_t place(const struct shard *shard, uint64_t code, uint16_t kind, uint64_t key)
{
    size_t i = code & (shard->size - 1);
    while (shard->entries[i].kind != PSG_FREE && (shard->entries[i].kind != kind || shard->entries[i].key != key))
        i = (i + 1) & (shard->size - 1);
    return i;
}

static bool grow(struct shard *shard)
{
    struct shard wider = {.size = shard->size ? 2 * shard->size : FIRST_SIZE};
    wider.entries = calloc(wider.size, sizeof *wider.entries);
    if (!wider.entries)
        return false;
    for (size_t i = 0; i < shard->size; i++) {
        const struct psg_entry *entry = &shard->entries[i];
        if (entry->kind != PSG_FREE)
            wider.entries[place(&wider, hash(entry->kind, entry->key), entry->kind, entry->key)] = *entry;
    }
    struct psg_entry *old = shard->entries;
    shard->entries = wider.entries;
    shard->size = wider.size;
    free(old);
    return true;
}

bool psg_table_put(const struct psg_entry *entry)
{
    uint64_t code = hash(entry->kind, entry->key);
    struct shard *shard = shard_of(code);
    psg_lock(&shard->lock);
    bool room = 4 * (shard->used + 1) <= 3 * shard->size || grow(shard);
    if (room) {
        size_t i = place(shard, code, entry->kind, entry->key);
        if (shard->entries[i].kind == PSG_FREE)
            shard->used++;
        shard->entries[i] = *entry;
    }
    psg_unlock(&shard->lock);
    return room;
}

/* Closes the gap at `hole`, so that every thing is still found from its first place on. */
static void take_out(struct shard *shard, size_t hole)
{
    size_t mask = shard->size - 1;
    for (size_t i = (hole + 1) & mask; shard->entries[i].kind != PSG_FREE; i = (i + 1) & mask) {
        size_t home = hash(shard->entries[i].kind, shard->entries[i].key) & mask;
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            shard->entries[hole] = shard->entries[i];
            hole = i;
        }
    }
    shard->entries[hole].kind = PSG_FREE;
    shard->used--;
}

static bool find_entry(enum psg_kind kind, uint64_t key, struct psg_entry *entry, bool remove)
{
    uint64_t code = hash((uint16_t)kind, key);
    struct shard *shard = shard_of(code);
    bool found = false;
    psg_lock(&shard->lock);
    if (shard->size) {
        size_t i = place(shard, code, (uint16_t)kind, key);
        found = shard->entries[i].kind != PSG_FREE;
        if (found) {
            *entry = shard->entries[i];
            if (remove)
                take_out(shard, i);
        }
    }
    psg_unlock(&shard->lock);
    return found;
}

bool psg_table_take(enum psg_kind kind, uint64_t key, struct psg_entry *entry)
{
    return find_entry(kind, key, entry, true);
}

bool psg_table_get(enum psg_kind kind, uint64_t key, struct psg_entry *entry)
{
    return find_entry(kind, key, entry, false);
}

/* `each` is called without a lock, for it may take others. */
void psg_table_sweep(enum psg_kind kind, uint64_t owner, void (*each)(const struct psg_entry *entry))
{
    for (size_t number = 0; number < SHARDS; number++) {
        struct shard *shard = &shards[number];
        psg_lock(&shard->lock);
        for (size_t i = 0; i < shard->size;) {
            struct psg_entry entry = shard->entries[i];
            if (entry.kind != kind || entry.owner != owner) {
                i++;
                continue;
            }
            take_out(shard, i);
            psg_unlock(&shard->lock);
            each(&entry);
            psg_lock(&shard->lock);
        }
        psg_unlock(&shard->lock);
    }
}

static void leave(const struct psg_entry *entry)
{
    struct psg_entry leaving = *entry;
    leaving.count = entry->kind;
    leaving.kind = PSG_LEAVING;
    psg_table_put(&leaving);
}

static void stay(const struct psg_entry *entry)
{
    struct psg_entry staying = *entry;
    staying.kind = (uint16_t)entry->count;
    staying.count = 0;
    psg_table_put(&staying);
}

void psg_table_leave(enum psg_kind kind, uint64_t owner)
{
    psg_table_sweep(kind, owner, leave);
}

void psg_table_stay(uint64_t owner)
{
    psg_table_sweep(PSG_LEAVING, owner, stay);
}

/* What another thread was changing at the moment of a fork is left alone. */
static void after_fork_in_child(void)
{
    for (size_t number = 0; number < SHARDS; number++)
        shards[number] = (struct shard){.lock = PTHREAD_MUTEX_INITIALIZER};
}

AT_FORK(.in_child = after_fork_in_child);
