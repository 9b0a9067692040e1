"""Like peer.c, with the semaphore that multiprocessing is built on."""

import sys
from _multiprocessing import SemLock

SEMAPHORE, MAXIMUM = 1, 1000

for line in sys.stdin:
    command, *args = line.split()
    answer = "ok"
    if command == "open":
        sem = SemLock._rebuild(0, SEMAPHORE, MAXIMUM, args[0])
    elif command == "create":
        sem = SemLock(SEMAPHORE, int(args[1]), MAXIMUM, args[0], False)
    elif command == "wait":
        sem.acquire()
    elif command == "post":
        sem.release()
    elif command == "value":
        answer = sem._get_value()
    else:
        answer = "what?"
    print(answer, flush=True)
