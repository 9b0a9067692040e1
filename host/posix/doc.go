// Package posix uses the POSIX semaphores of glibc: the named ones of sem_open, and
// those that sem_init put into shared memory. It is for sharing a semaphore with
// programs in C, Python (multiprocessing) or any other language, without cgo.
// [AsGate] makes a [sema.Gate] of one.
//
//	jobs, err := posix.Create("/jobs", 0o600, 4, false)
//	…
//	if err := jobs.Wait(ctx); err != nil { … }
//	defer jobs.Post()
//
// # When not to use it
//
// Among Go programs use package host. A POSIX semaphore is a number without
// holders, so it cannot survive a crash:
//
//   - The permit of a process killed between Wait and Post is lost.
//   - A wake-up of a process that is killed, or exits, while it waits may be lost:
//     another process continues to sleep although a permit is free, until the next
//     Post. It also stays counted in Waiters, which costs each Post a system call.
//
// [Semaphore.Repair] corrects both, if the right number is known. There is
// no order among processes either: a new caller may overtake waiters.
//
// # What it shares
//
// The semaphore NAME is the file /dev/shm/sem.NAME, and a semaphore is the 32
// bytes of sem_t of glibc 2.21 and later on 64-bit Linux: a 64-bit word, value
// in its low half and number of waiters in its high half, and an int that is 128
// when processes share it. Elsewhere every constructor fails with
// [errors.ErrUnsupported]: sem_t of 32-bit glibc has another layout, and so has
// musl's (Alpine), whose semaphores are recognised and rejected.
//
// Waiting costs one blocked thread for each process and semaphore, however many
// goroutines wait. That thread is in a system call, so in a bubble of
// testing/synctest time stands still while a goroutine waits.
package posix
