/* A library to preload: every child keeps the descriptors of its parent for 200 ms before it goes on. A program with
 * several threads meets such children by chance under load; with this library each child is one. `setup/flakes fork`
 * uses it.
 *
 * posix_spawn of glibc cannot be delayed, so it is written here by clone: the actions on descriptors are
 * recorded, one list for each thread, because the type that holds them is opaque.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { ACTIONS_MAX = 32 };
static _Thread_local struct { int from, to; } dups[ACTIONS_MAX];
static _Thread_local int dup_count;
static _Thread_local const char *folder;

/* Slows only the test's own children: scripts with hundreds of children would take minutes. */
__attribute__((constructor)) static void in_the_test_alone(void) {
    unsetenv("LD_PRELOAD");
}

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

struct program {
    const char *file;
    const posix_spawn_file_actions_t *actions;
    const posix_spawnattr_t *attributes;
    char *const *argv;
    char *const *envp;
    int searches;
    sigset_t signals;
    int error;
};

/* The child, which shares the memory of its parent. */
static int execute(void *argument) {
    struct program *p = argument;
    hold();
    sigprocmask(SIG_SETMASK, &p->signals, NULL);
    p->error = prepare(p->attributes, p->actions != NULL);
    if (p->error == 0) {
        p->searches ? execvpe(p->file, p->argv, p->envp) : execve(p->file, p->argv, p->envp);
        p->error = errno;
    }
    _exit(127);
}

/* Like glibc: shares memory with the child and suspends the calling thread until the child executes. A forked child
 * would inherit shared file mappings, which a child of posix_spawn never does. */
static int spawn(pid_t *pid, struct program program) {
    const size_t stack_bytes = 1 << 20;
    char *stack = mmap(NULL, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED) return errno;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &program.signals);
    pid_t child = clone(execute, stack + stack_bytes, CLONE_VM | CLONE_VFORK | SIGCHLD, &program);
    int error = child < 0 ? errno : program.error;
    pthread_sigmask(SIG_SETMASK, &program.signals, NULL);
    munmap(stack, stack_bytes);
    if (error == 0 && pid) *pid = child;
    return error;
}

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attributes, char *const argv[], char *const envp[]) {
    return spawn(pid, (struct program){path, actions, attributes, argv, envp, 0, {{0}}, 0});
}

int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes, char *const argv[], char *const envp[]) {
    return spawn(pid, (struct program){file, actions, attributes, argv, envp, 1, {{0}}, 0});
}
