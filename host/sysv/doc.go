// Package sysv uses the System V semaphore sets of the kernel (semget, semop and
// semctl), to share semaphores with programs that use these calls.
//
// Such programs are mostly older ones: databases, transaction monitors, C code from
// before threads. Sets have two features that nothing else on a host has. One operation
// changes several semaphores atomically ([Set.Op]). And the kernel undoes the changes
// of a process that has ended ([Op].Undo). [AsGate] turns one semaphore of a set into a
// [sema.Gate].
//
// Between Go programs prefer package host. It serves strictly in order, and reports the
// holders and the number of waiters. It needs no key that may collide, and leaves no
// entry in a kernel table of fixed size. For semaphores that C programs open with
// sem_open, use package host/posix.
//
// # Sets
//
// A set is found by its [Key], a number that programs agree on or derive from a file
// ([KeyOf]), or by its id. It belongs to the kernel: it exists until it is removed or
// the host restarts, and needs no Close. In a shell, "ipcs -s" lists all sets,
// "ipcs -s -i id" shows one, and "ipcrm -s id" or "ipcrm -S key" removes one. [List]
// and [Remove] do the same.
//
// Keys and ids belong to an IPC namespace. By default a container has its own, and
// finds no sets of the host (see docker run --ipc=host and --ipc=container:name).
//
// A set is created and initialised in two steps, and a program that opens it in between
// would find zeros. Therefore [Create] and [OpenOrCreate] set all values with one
// semop, the first one on the set. [Open] waits for that semop, which the kernel
// records as the time of the last operation. C programs do the same by waiting until
// sem_otime is not 0. For sets whose creator sets the values with semctl alone, use
// [OpenAny].
//
// # Undo
//
// When a process ends, however it ends, the kernel undoes its operations with Undo, and
// not before. It adds up their changes to each semaphore and subtracts the sum, going no
// lower than 0 and no higher than 32767. The sum belongs to the process. All threads
// share it, and it outlives the goroutine and the thread that did the operation. A child
// does not inherit it; exec keeps it. Therefore:
//
//   - Use Undo if the same process acquires and releases, and use it for both
//     operations. Never use it if one process acquires and another releases.
//   - [Set.SetValue] and [Set.SetValues] reset the sums of all processes: permits held
//     at that moment are not released automatically.
//
// # Order
//
// The kernel serves waiters that fit. Whenever the value of a semaphore changes, it
// tries the waiters in order of arrival. But a waiter that asks for more than is free
// is overtaken by lighter waiters and by new callers: under steady load a heavy waiter
// may starve. A waiter that is interrupted by a signal goes to the end of the queue. So
// does a waiter that is stopped, by SIGSTOP or a debugger, but only when it is
// continued: until then it is not queued, and delays no other waiter. A process that
// was served just before it was stopped holds its permits until it is continued or
// killed.
//
// # Waiting
//
// A waiter uses a thread. When its context ends, the thread is interrupted with SIGURG,
// the signal that the Go runtime uses for preemption. Programs that use
// [os/signal.Notify] for that signal receive some more of it. In programs that ignore
// it, a waiter polls its context every five milliseconds instead.
//
// # Systems
//
// The package supports Linux on amd64, arm64, riscv64 and loong64. On other systems
// every call fails with [errors.ErrUnsupported].
package sysv
