/* Where limits and account stand; for limits.c and account.c only. */
#ifndef PSG_LIMITS_H
#define PSG_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

const char *psg_limits_path(void);
const char *psg_account_path(void);
bool psg_limits_readable(void);
void psg_limits_after_fork(void);

#endif
