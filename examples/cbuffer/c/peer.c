// peer FILE ITEMS is a producer and a consumer of the bounded buffer in FILE, which main.go
// has created. It produces ITEMS items, from 1000 on, and prints those that it consumes.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define CAPACITY 8

// The layout is that of type buffer in main.go.
struct buffer {
    sem_t empty; // places that are free
    sem_t full;  // places with an item
    sem_t mutex; // guards what follows
    uint32_t put, taken;
    uint32_t items[CAPACITY];
};

static struct buffer *b;
static uint32_t items;

static void wait_for(sem_t *s) {
    while (sem_wait(s) != 0 && errno == EINTR)
        ;
}

static void *produce(void *unused) {
    (void)unused;
    for (uint32_t i = 0; i < items; i++) {
        wait_for(&b->empty);
        wait_for(&b->mutex);
        b->items[b->put++ % CAPACITY] = 1000 + i;
        sem_post(&b->mutex);
        sem_post(&b->full);
    }
    return NULL;
}

static void *consume(void *unused) {
    (void)unused;
    for (uint32_t i = 0; i < items; i++) {
        wait_for(&b->full);
        wait_for(&b->mutex);
        uint32_t item = b->items[b->taken++ % CAPACITY];
        sem_post(&b->mutex);
        sem_post(&b->empty);
        printf("%u\n", item);
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: peer FILE ITEMS\n");
        return 2;
    }
    items = (uint32_t)atoi(argv[2]);
    int fd = open(argv[1], O_RDWR);
    b = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (b == MAP_FAILED) {
        perror(argv[1]);
        return 1;
    }
    pthread_t producer, consumer;
    if (pthread_create(&producer, NULL, produce, NULL) != 0 || pthread_create(&consumer, NULL, consume, NULL) != 0) {
        fprintf(stderr, "cannot start a thread\n");
        return 1;
    }
    pthread_join(producer, NULL);
    pthread_join(consumer, NULL);
    return 0;
}
