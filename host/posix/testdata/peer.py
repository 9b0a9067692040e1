"""Like peer.c, with the semaphore that multiprocessing uses."""

import sys
from _multiprocessing import SemLock

SEMAPHORE, MAXIMUM = 1, 1000

for line in sys.stdin:
    command, *args = line.split()
    reply = "ok"
    if command == "open":
        sem = SemLock._rebuild(0, SEMAPHORE, MAXIMUM, args[0])
    elif command == "create":
        sem = SemLock(SEMAPHORE, int(args[1]), MAXIMUM, args[0], False)
    elif command == "wait":
        sem.acquire()
    elif command == "post":
        sem.release()
    elif command == "value":
        reply = sem._get_value()
    else:
        reply = "unknown command"
    print(reply, flush=True)
