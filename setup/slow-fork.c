/* A library to preload: every child keeps the descriptors of its parent for 200 ms before it goes on. A program with
 * several threads meets such children by chance under load; with this library each child is one. `setup/flakes fork`
 * uses it.
 *
 * posix_spawn of glibc cannot be delayed, so it is written here in terms of fork: the actions on descriptors are
 * recorded, one list for each thread, because the type that holds them is opaque.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { ACTIONS_MAX = 32 };
static _Thread_local struct { int from, to; } dups[ACTIONS_MAX];
static _Thread_local int dup_count;
static _Thread_local const char *folder;

static void hold(void) {
    struct timespec left = {0, 200 * 1000 * 1000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

static pid_t real_fork(void) {
    static pid_t (*real)(void);
    if (!real) real = (pid_t(*)(void))dlsym(RTLD_NEXT, "fork");
    return real();
}

pid_t fork(void) {
    pid_t pid = real_fork();
    if (pid == 0) hold();
    return pid;
}

int posix_spawn_file_actions_init(posix_spawn_file_actions_t *actions) {
    (void)actions;
    dup_count = 0;
    folder = NULL;
    return 0;
}

int posix_spawn_file_actions_destroy(posix_spawn_file_actions_t *actions) {
    return posix_spawn_file_actions_init(actions);
}

int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *actions, int from, int to) {
    (void)actions;
    if (dup_count == ACTIONS_MAX) return ENOMEM;
    dups[dup_count].from = from;
    dups[dup_count++].to = to;
    return 0;
}

int posix_spawn_file_actions_addchdir_np(posix_spawn_file_actions_t *actions, const char *path) {
    (void)actions;
    folder = path;
    return 0;
}

static int prepare(const posix_spawnattr_t *attributes, int has_actions) {
    short flags = 0;
    sigset_t set;
    if (attributes) posix_spawnattr_getflags(attributes, &flags);
    if (flags & POSIX_SPAWN_SETSIGDEF) {
        posix_spawnattr_getsigdefault(attributes, &set);
        for (int sig = 1; sig < NSIG; sig++)
            if (sigismember(&set, sig) == 1) signal(sig, SIG_DFL);
    }
    if (flags & POSIX_SPAWN_SETSIGMASK) {
        posix_spawnattr_getsigmask(attributes, &set);
        sigprocmask(SIG_SETMASK, &set, NULL);
    }
    if (flags & POSIX_SPAWN_SETPGROUP) {
        pid_t group;
        posix_spawnattr_getpgroup(attributes, &group);
        if (setpgid(0, group) != 0) return errno;
    }
    if (!has_actions) return 0;
    for (int i = 0; i < dup_count; i++) {
        int is_same = dups[i].from == dups[i].to;
        if (is_same ? fcntl(dups[i].to, F_SETFD, 0) != 0 : dup2(dups[i].from, dups[i].to) < 0) return errno;
    }
    return folder && chdir(folder) != 0 ? errno : 0;
}

static int spawn(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes, char *const argv[], char *const envp[], int searches) {
    int told[2], error = 0;
    if (pipe2(told, O_CLOEXEC) != 0) return errno;
    pid_t child = real_fork();
    if (child == 0) {
        hold();
        /* Out of the way of the descriptors that are about to be set. */
        int tell = fcntl(told[1], F_DUPFD_CLOEXEC, 200);
        error = prepare(attributes, actions != NULL);
        if (error == 0) {
            searches ? execvpe(file, argv, envp) : execve(file, argv, envp);
            error = errno;
        }
        if (write(tell, &error, sizeof error) < 0) _exit(126);
        _exit(127);
    }
    int failure = child < 0 ? errno : 0;
    close(told[1]);
    if (failure == 0 && read(told[0], &error, sizeof error) == sizeof error) failure = error;
    close(told[0]);
    if (failure == 0 && pid) *pid = child;
    return failure;
}

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attributes, char *const argv[], char *const envp[]) {
    return spawn(pid, path, actions, attributes, argv, envp, 0);
}

int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes, char *const argv[], char *const envp[]) {
    return spawn(pid, file, actions, attributes, argv, envp, 1);
}
