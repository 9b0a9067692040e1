// bench NAME ITERATIONS prints the nanoseconds of an uncontended pair of sem_wait and
// sem_post on the named semaphore. If the semaphore does not exist, it is created with
// value 1.
#include <fcntl.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: bench NAME ITERATIONS\n");
        return 2;
    }
    sem_t *s = sem_open(argv[1], O_CREAT, 0600, 1);
    if (s == SEM_FAILED) {
        perror("sem_open");
        return 1;
    }
    long n = atol(argv[2]);
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (long i = 0; i < n; i++) {
        sem_wait(s);
        sem_post(s);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("%.3f\n", ((to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec)) / n);
    return 0;
}
