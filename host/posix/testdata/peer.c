// peer executes one command per line and prints one line for each: "ok", a number, or
// the name of an error.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static sem_t *sem = SEM_FAILED;

static void reply(int failed) { puts(failed ? strerrorname_np(errno) : "ok"); }

static void post_on_signal(int sig) { (void)sig, sem_post(sem); }

static int wait_through_signals(sem_t *s) {
    int r;
    while ((r = sem_wait(s)) != 0 && errno == EINTR)
        ;
    return r;
}

static void *map_file(const char *path) {
    int fd = open(path, O_RDWR);
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return p;
}

// sleep_only registers as a waiter and sleeps like sem_wait. It returns when woken,
// before the permit is acquired: a process may be killed at this point.
static void sleep_only(void) {
    __atomic_fetch_add((unsigned long *)sem, 1UL << 32, __ATOMIC_SEQ_CST);
    unsigned *value = (unsigned *)sem + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
    while (syscall(SYS_futex, value, FUTEX_WAIT, 0, NULL, NULL, 0) != 0 && errno == EINTR)
        ;
}

// A section is shared by the holders of permits: the number of threads inside, how often
// that exceeded the capacity, and the number of visits.
struct section {
    long inside, exceeded, visits;
};

static struct section *section;
static long rounds, capacity;

static void *visit(void *unused) {
    (void)unused;
    for (long i = 0; i < rounds; i++) {
        wait_through_signals(sem);
        if (__atomic_add_fetch(&section->inside, 1, __ATOMIC_SEQ_CST) > capacity)
            __atomic_add_fetch(&section->exceeded, 1, __ATOMIC_SEQ_CST);
        __atomic_add_fetch(&section->visits, 1, __ATOMIC_SEQ_CST);
        if (i % 4 == 0)
            sched_yield();
        __atomic_sub_fetch(&section->inside, 1, __ATOMIC_SEQ_CST);
        sem_post(sem);
    }
    return NULL;
}

int main(void) {
    char line[1024], arg[600];
    long n;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (;;) {
        int value;
        errno = 0;
        if (!fgets(line, sizeof line, stdin)) {
            if (errno != EINTR)
                return 0;
            clearerr(stdin); // interrupted by a signal whose handler posts
            continue;
        }
        if (sscanf(line, "open %599s", arg) == 1) {
            sem = sem_open(arg, 0);
            reply(sem == SEM_FAILED);
        } else if (sscanf(line, "create %599s %ld", arg, &n) == 2) {
            sem = sem_open(arg, O_CREAT, 0600, (unsigned)n);
            reply(sem == SEM_FAILED);
        } else if (sscanf(line, "exclusive %599s %ld", arg, &n) == 2) {
            sem = sem_open(arg, O_CREAT | O_EXCL, 0600, (unsigned)n);
            reply(sem == SEM_FAILED);
        } else if (sscanf(line, "init %599s %ld", arg, &n) == 2) {
            sem = map_file(arg);
            reply(sem_init(sem, 1, (unsigned)n));
        } else if (sscanf(line, "attach %599s", arg) == 1) {
            sem = map_file(arg);
            reply(0);
        } else if (sscanf(line, "unlink %599s", arg) == 1) {
            reply(sem_unlink(arg));
        } else if (sscanf(line, "visit %599s %ld %ld", arg, &rounds, &capacity) == 3) {
            pthread_t other;
            section = map_file(arg);
            pthread_create(&other, NULL, visit, NULL);
            visit(NULL);
            pthread_join(other, NULL);
            reply(0);
        } else if (sscanf(line, "echo %599s %ld", arg, &n) == 2) {
            sem_t *back = sem_open(arg, 0);
            for (long i = 0; i < n; i++) {
                wait_through_signals(sem);
                sem_post(back);
            }
            reply(0);
        } else if (sscanf(line, "timedwait %ld", &n) == 1) {
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_nsec += n * 1000000;
            until.tv_sec += until.tv_nsec / 1000000000;
            until.tv_nsec %= 1000000000;
            reply(sem_timedwait(sem, &until));
        } else if (!strcmp(line, "wait\n")) {
            reply(wait_through_signals(sem));
        } else if (!strcmp(line, "try\n")) {
            reply(sem_trywait(sem));
        } else if (!strcmp(line, "post\n")) {
            reply(sem_post(sem));
        } else if (!strcmp(line, "value\n")) {
            sem_getvalue(sem, &value);
            printf("%d\n", value);
        } else if (!strcmp(line, "sleep only\n")) {
            sleep_only();
            puts("woken");
        } else if (!strcmp(line, "post on signal\n")) {
            struct sigaction act = {.sa_handler = post_on_signal};
            reply(sigaction(SIGUSR1, &act, NULL));
        } else {
            puts("unknown command");
        }
    }
}
