/* Makes one system call by its number, so many times: `call TIMES NUMBER [ARGUMENT...]`, and says how the last ended.
 * A negative number is one of the 32-bit interface, which programs of 64 bits may use as well. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static long narrow(long number, const long *arguments)
{
    long result;
    __asm__ volatile("int $0x80"
                     : "=a"(result)
                     : "a"(number), "b"(arguments[0]), "c"(arguments[1]), "d"(arguments[2]), "S"(arguments[3])
                     : "memory", "r8", "r9", "r10", "r11");
    return result;
}

int main(int count, char **words)
{
    long arguments[6] = {0}, times = atol(words[1]), number = atol(words[2]), result = 0;
    for (int at = 3; at < count; at++)
        arguments[at - 3] = strtol(words[at], NULL, 0);
    while (times--) {
        if (number < 0)
            result = narrow(-number, arguments);
        else
            result = syscall(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
                             arguments[5]) == -1
                         ? -errno
                         : 0;
    }
    printf("%s\n", result < 0 ? strerrorname_np(-result) : "0");
    return 0;
}
