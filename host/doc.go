// Package host bounds concurrency among the processes of one machine, without
// a daemon: a build that may run four compilers however many shells start it,
// a GPU that three services share, a cron job that must not overlap itself.
//
//	sem, err := host.Open("compilers", 4)
//	…
//	permit, err := sem.Acquire(ctx, 1)
//	…
//	defer permit.Release()
//
// It is crash-safe. A permit is a byte of a file that the holder has locked,
// and the kernel drops the locks of a process that ends, however it ends: its
// permits are free at once, and waiters notice within 100 ms. Nothing else
// decides whether a permit is free, so no bookkeeping can drift and no more than
// the capacity is ever granted. Besides the locks the file has some memory shared
// by all openers: hints of what is free, a queue of the waiting processes and a
// futex to wake each of them. If these are lost or wrong, they cost time, not
// permits.
//
// # Stored and local
//
// The capacity, [sema.MaxWaiters] and whether the semaphore is draining are stored
// in the file and apply to all processes. They stay when no process has it open,
// until the machine restarts or [Remove] deletes it. A process that opens it with
// other values uses the stored ones, and [sema.EventMismatched] reports that.
// [Semaphore.Resize], [Semaphore.SetMaxWaiters], [Semaphore.Drain] and
// [Semaphore.Resume] change them for all. Everything else is of the process:
// [sema.MaxWait], observers, diagnostics.
//
// # Order
//
// Waiters are served in the order of their arrival, among all goroutines of
// all processes, weights included: while a heavy one waits at the head, later
// ones do not overtake it. There are two exceptions. A waiting process that has
// not run for 150 ms (SIGSTOP, a debugger, an overloaded machine) is skipped until
// it runs again, and then has its old place. And a caller that arrives in the very
// moment in which the first waiter joins the queue may be served before it.
//
// # Where
//
// The file is in a directory of the user under /run/lock, or under /var/tmp where
// that is not open to all users, whatever the environment: cron, shells and services
// of one user share one file by its name. [ShareWithGroup] shares it among the
// members of a group instead. Containers have a /run of their own: mount one
// directory into all of them, and name it with [Dir]. Network filesystems are
// rejected: their locks and their memory are not shared as this package needs it.
// For several machines, use package fleet.
//
// Every process that may write the file is trusted with the capacity: those of the
// user, or of the members of the group. What others wrote into it is checked before
// it is returned ([Holder]), and a file that was truncated or overwritten is
// [ErrDamaged]: its semaphore grants nothing until all processes have closed it, and
// permits that are held stay valid. A file that this package did not create is never
// overwritten; [BadFiles] lists such files.
//
// Linux has open-file-description locks and futexes, for which this package was
// designed. On macOS and the BSDs it uses POSIX record locks and polls every few
// milliseconds, and [Inherit] is not supported; network filesystems are not
// recognised, and a process must not open the file by other means: closing it would
// drop its locks. On other systems everything fails with [errors.ErrUnsupported].
//
// Waiting is in the kernel, where the clock of a testing/synctest bubble has no
// effect: tests of code that waits here run outside one.
//
// Use package host/posix or host/sysv instead to share semaphores with programs that
// use those.
package host
