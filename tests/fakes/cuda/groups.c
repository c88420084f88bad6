/* Memory limits of control groups, as the driver keeps them since 615. */
#include "machine_state.h"

#include <stdio.h>
#include <string.h>

static int in_group(int pid, const char *group)
{
    char path[64], line[MACHINE_PATH];
    FILE *file;
    int found = 0;
    snprintf(path, sizeof path, "/proc/%d/cgroup", pid);
    if ((file = fopen(path, "re")) == NULL)
        return 0;
    while (!found && fgets(line, sizeof line, file)) {
        char *at = strchr(line, ':') ? strchr(strchr(line, ':') + 1, ':') : NULL;
        size_t length = at ? strcspn(++at, "\n") : 0, whole = strlen(group);
        found = length > 1 && length <= whole && strncmp(group + whole - length, at, length) == 0;
    }
    fclose(file);
    return found;
}

int machine_limit(unsigned gpu, const char *group, uint64_t soft, uint64_t hard)
{
    machine_group *place = NULL;
    machine_lock();
    for (unsigned index = 0; index < LIMITS; index++) {
        machine_group *each = &machine_shared->limits[index];
        if (each->gpu == gpu && strcmp(each->group, group) == 0) {
            place = each;
            break;
        }
        if (place == NULL && each->group[0] == 0)
            place = each;
    }
    if (place != NULL) {
        memset(place, 0, sizeof *place);
        if (soft != 0 || hard != UINT64_MAX) {
            snprintf(place->group, sizeof place->group, "%s", group);
            place->gpu = gpu;
            place->soft = soft;
            place->hard = hard;
        }
    }
    machine_unlock();
    return place == NULL ? -1 : 0;
}

int machine_get_limit(unsigned gpu, const char *group, uint64_t *soft, uint64_t *hard, uint64_t *used)
{
    int result = -1;
    *used = 0;
    machine_lock();
    machine_reap();
    for (unsigned index = 0; index < LIMITS; index++) {
        const machine_group *each = &machine_shared->limits[index];
        if (each->gpu == gpu && strcmp(each->group, group) == 0) {
            *soft = each->soft;
            *hard = each->hard;
            result = 0;
        }
    }
    for (unsigned index = 0; index < machine_shared->slots; index++)
        if (in_group(machine_living(&machine_shared->processes[index]), group))
            *used += machine_shared->processes[index].on[gpu].bytes;
    machine_unlock();
    return result;
}
