// Package posix speaks to the POSIX semaphores of glibc: the named ones of
// sem_open, and those that sem_init put into shared memory. It is for meeting
// programs in C, Python (multiprocessing) or any other language at a semaphore
// they use already, without cgo.
//
//	jobs, err := posix.Create("/jobs", 0o600, 4, false)
//	…
//	if err := jobs.Wait(ctx); err != nil { … }
//	defer jobs.Post()
//
// # When not to use it
//
// Among Go programs use package host. A POSIX semaphore is a number that
// remembers nobody, so it cannot survive a crash:
//
//   - A process killed between Wait and Post takes its permit along for good.
//   - A process that is killed, or exits, while it waits may take a wake-up
//     along: somebody else sleeps on although a permit is free, until the next
//     Post. It also stays counted in Waiters, which costs each Post a system
//     call and no more.
//
// [Semaphore.Repair] mends both, if somebody knows the right number. There is
// no order among processes either: an arrival may overtake those who wait.
//
// # What it shares
//
// The semaphore NAME is the file /dev/shm/sem.NAME, and a semaphore is the 32
// bytes of sem_t of glibc 2.21 and later on 64-bit Linux: a 64-bit word, value
// in its low half and number of waiters in its high half, and an int that is 128
// when processes share it. Elsewhere every constructor answers
// [errors.ErrUnsupported]: sem_t of 32-bit glibc is laid out otherwise, and so
// is musl's (Alpine), whose semaphores are recognised and refused.
//
// Waiting costs one blocked thread for each process and semaphore, however many
// goroutines wait. That thread is in a system call, so in a bubble of
// testing/synctest time stands still while somebody waits.
package posix
