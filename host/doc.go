// Package host bounds concurrency among the processes of one machine, without a
// daemon. It is for builds that may run four compilers, however many shells start
// them, for a GPU that three services share, and for a cron job that must not
// overlap itself.
//
//	sem, err := host.Open("compilers", 4)
//	…
//	permit, err := sem.Acquire(ctx, 1)
//	…
//	defer permit.Release()
//
// The semaphore is crash-safe. A permit is a slot of a file that all openers map: it
// names its owner, a process that has a lock on the file. The kernel drops the locks
// of a process that ends, however it ends: its permits are free at once. The first waiter
// watches the holders and is woken; holders that it cannot watch, such as those of other
// PID namespaces, are noticed within 100 ms. There is no count of the held permits that
// could drift, so they never exceed the capacity. An acquire of a free permit and its
// release make no system call. The file also contains hints about free permits, a queue of
// the waiting processes and a futex to wake each of them. If these are lost or wrong, the
// cost is time, not permits. A slot that was lost or overwritten is recognised, and grants
// nothing.
//
// # Stored and local
//
// The capacity, [sema.MaxWaiters] and whether the semaphore is draining are stored
// in the file and apply to all processes. They stay stored while no process has the
// file open, until the machine restarts or [Remove] deletes it. A process that opens
// the semaphore with other values uses the stored ones, and [sema.EventMismatched]
// reports the difference. [Semaphore.Resize], [Semaphore.SetMaxWaiters],
// [Semaphore.Drain] and [Semaphore.Resume] change the stored values for all
// processes. Everything else is local to the process: [sema.MaxWait], observers,
// diagnostics.
//
// # Order
//
// Waiters are served in order of arrival, among all goroutines of all processes,
// weights included: later waiters do not overtake a heavy one at the head. There are
// two exceptions. A waiting process that has not run for 150 ms (SIGSTOP, a debugger,
// an overloaded machine) is skipped until it runs again; it then has its old place in
// the queue. And a caller that arrives at the very moment the first waiter joins the
// queue may be served before that waiter.
//
// # Location
//
// The file is in a directory of the user under /run/lock, or under /var/tmp if
// /run/lock is not open to all users. The environment does not matter: cron, shells
// and services of one user share one file by its name. [ShareWithGroup] shares it
// among the members of a group instead. Each container has its own /run: mount one
// directory into all containers and pass it to [Dir]. Network filesystems are
// rejected because they do not share locks and memory as this package needs. For
// several machines, use package fleet.
//
// Every process that may write the file is trusted with the capacity: the processes
// of the user, or of the members of the group. Content written by other processes is
// checked before it is returned ([Holder]). A file that was truncated or overwritten
// is [ErrDamaged]: its semaphore grants nothing until all processes have closed it,
// and held permits stay valid. Do not restore an old copy of a file that is in use: its
// slots look right. A file that this package did not create is never overwritten;
// [BadFiles] lists such files.
//
// # Systems
//
// The package is designed for Linux, with its open-file-description locks and futexes.
// On macOS and the BSDs it uses POSIX record locks and polls every few milliseconds.
// There, [Inherit] is not supported and network filesystems are not recognised. There,
// a process also must not open the file by other means: closing it would drop the locks
// of the process. On other systems every call fails with [errors.ErrUnsupported].
//
// Waiters block in the kernel, where the clock of a testing/synctest bubble has no
// effect: run tests of code that waits here outside a bubble.
//
// To share semaphores with programs that use the POSIX or System V calls, use package
// host/posix or host/sysv instead.
package host
