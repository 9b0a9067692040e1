/* partner executes commands on a semaphore set, one per line. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <unistd.h>

union semun { int val; struct semid_ds *buf; unsigned short *array; };

static int set = -1;

static void reply(int result, const char *done) {
	if (result >= 0)
		puts(done);
	else
		printf("%s\n", errno == EAGAIN ? "full" : strerror(errno));
	fflush(stdout);
}

static int change(int num, int delta, int flags) {
	struct sembuf op = {num, delta, flags};
	int result;
	while ((result = semop(set, &op, 1)) < 0 && errno == EINTR)
		;
	return result;
}

/* Opens a set as the documentation of the Go package describes: wait for sem_otime. */
static int open_initialised(int key) {
	struct semid_ds about;
	union semun arg = {.buf = &about};
	set = semget(key, 0, 0);
	while (set >= 0) {
		if (semctl(set, 0, IPC_STAT, arg) < 0)
			return -1;
		if (about.sem_otime != 0)
			return set;
		usleep(1000);
	}
	return -1;
}

int main(void) {
	char line[4096], path[4096];
	int a, b, undo;
	while (fgets(line, sizeof line, stdin)) {
		if (sscanf(line, "ftok %d %4095s", &a, path) == 2) {
			printf("%d\n", (int)ftok(path, a));
			fflush(stdout);
		} else if (sscanf(line, "open %d", &a) == 1) {
			reply(open_initialised(a), "opened");
		} else if (sscanf(line, "create %d %d", &a, &b) == 2) {
			union semun arg = {.val = b};
			set = semget(a, 1, IPC_CREAT | IPC_EXCL | 0600);
			reply(set < 0 ? set : semctl(set, 0, SETVAL, arg), "created");
		} else if (sscanf(line, "op %d %d %d", &a, &b, &undo) == 3) {
			reply(change(a, b, undo ? SEM_UNDO : 0), "done");
		} else if (sscanf(line, "try %d %d %d", &a, &b, &undo) == 3) {
			reply(change(a, b, IPC_NOWAIT | (undo ? SEM_UNDO : 0)), "done");
		} else if (sscanf(line, "value %d", &a) == 1) {
			printf("%d\n", semctl(set, a, GETVAL));
			fflush(stdout);
		} else {
			printf("unknown command: %s", line);
			fflush(stdout);
		}
	}
	return 0;
}
