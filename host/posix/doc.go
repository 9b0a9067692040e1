// Package posix uses the POSIX semaphores of glibc: named semaphores of sem_open, and
// those that sem_init creates in shared memory. Use it to share a semaphore with
// programs in C, Python (multiprocessing) or any other language, without cgo.
// [AsGate] turns a semaphore into a [sema.Gate].
//
//	jobs, err := posix.Create("/jobs", 0o600, 4, false)
//	…
//	if err := jobs.Wait(ctx); err != nil { … }
//	defer jobs.Post()
//
// # When not to use it
//
// Among Go programs use package host. A POSIX semaphore is a number without holders,
// so it is not crash-safe:
//
//   - The permit of a process killed between Wait and Post is lost.
//   - If a process is killed, or exits, while it waits, its wake-up may be lost:
//     another process continues to sleep although a permit is free, until the next
//     Post. The process also stays counted in Waiters, which costs each Post a system
//     call.
//
// [Semaphore.Repair] corrects both, if the right number is known. There is also no
// order among processes: a new caller may overtake waiters.
//
// # Layout
//
// The semaphore NAME is the file /dev/shm/sem.NAME. A semaphore consists of the 32
// bytes of sem_t in glibc 2.21 and later on 64-bit Linux. They begin with a 64-bit word:
// the value in its low half, the number of waiters in its high half. An int follows that
// is 128 if processes share the semaphore. On other systems every constructor fails with
// [errors.ErrUnsupported]. 32-bit glibc and musl (Alpine) have other layouts;
// semaphores of musl are recognised and rejected.
//
// Waiting blocks one thread per process and semaphore, however many goroutines wait.
// That thread is in a system call, so time stands still in a testing/synctest bubble
// while a goroutine waits.
package posix
