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
// and the kernel drops the locks of a process that dies, however it dies: its
// permits are back at once, and waiters notice within 100 ms. Nothing else
// decides who may enter, so no bookkeeping can drift and nobody can be let in
// above the capacity. Beside the locks the file has some memory shared by all
// openers: hints of what is free, a line for those who wait and a word to wake
// each of them by. Lost or wrong, they cost time, not permits.
//
// # Order
//
// Waiters are served in the order in which they came, among all goroutines of
// all processes, weight included: while a heavy one waits at the head, later
// ones do not overtake it. There are two exceptions. A process that waits and
// has not run for 150 ms (SIGSTOP, a debugger, a machine out of breath) is
// passed over until it runs again, and then has its old place back. And a
// caller who arrives in the very moment in which the first waiter stands in line
// may be admitted before it.
//
// # Where
//
// The file is in a directory of the user's own under /run/lock, or under
// /var/tmp where that cannot be written, whatever the environment says: cron,
// shells and services of one user meet under one name. [ShareWithGroup] lets
// the members of a group meet instead. Containers have a /run of their own:
// mount one directory into all of them, and name it with [Dir]. Network
// filesystems are refused; their locks and their memory are not shared with
// other machines in the way this package needs. For machines, use package
// fleet.
//
// Whoever may write the file is trusted with the capacity: the user, or the
// members of the group. What others wrote into it is checked before it is shown
// ([Holder]), and a file that was cut short or overwritten is [ErrDamaged]: its
// semaphore admits nobody until all have closed it, and permits that are held
// stay good. A file that this package did not make is never overwritten.
//
// Linux has open-file-description locks and futexes, which this package was
// made for. On macOS and the BSDs it locks by POSIX record locks, waits by
// looking every few milliseconds, and [Inherit] is not supported; network
// filesystems are not recognised, and a process must not open the file by other
// means: closing it would drop its locks. On other systems everything answers
// [errors.ErrUnsupported].
//
// Waiting is in the kernel, where the clock of a testing/synctest bubble does not
// reach: tests of code that waits here run outside one.
//
// Use package host/posix or host/sysv instead to meet programs that use those.
package host
