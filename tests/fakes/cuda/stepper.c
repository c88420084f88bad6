/* Kills a program in the middle of a call: runs it until it stops itself, then so many instructions, then SIGKILL.
 *
 * stepper STEPS PROGRAM ARGUMENT…; prints how many instructions ran, fewer than STEPS where the program stopped again.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static int stopped_itself(int status)
{
    return WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP;
}

int main(int count, char **arguments)
{
    long steps, done = 0;
    int status = 0;
    pid_t child;
    if (count < 3)
        return 2;
    steps = atol(arguments[1]);
    if ((child = fork()) == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        execv(arguments[2], arguments + 2);
        _exit(127);
    }
    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status) && !stopped_itself(status))
        ptrace(PTRACE_CONT, child, NULL, WSTOPSIG(status) == SIGTRAP ? 0 : (long)WSTOPSIG(status));
    if (!stopped_itself(status))
        return 3;
    for (; done < steps; done++) {
        if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) != 0 || waitpid(child, &status, 0) != child)
            return 4;
        if (!WIFSTOPPED(status) || stopped_itself(status))
            break;
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    printf("%ld\n", done);
    return 0;
}
