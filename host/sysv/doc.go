// Package sysv is for the semaphore sets of System V: semget, semop and semctl.
//
// They are what older programs share: databases, transaction monitors, C code from
// before threads. And they can do what nothing else on a host can: change several
// semaphores in one step, or none of them ([Set.Op]), and undo the changes of a
// process that has ended ([Op].Undo). [AsGate] makes a [sema.Gate] of one semaphore of a set.
//
// Between Go programs prefer package host: it serves strictly in order, knows the
// holders and the number of waiters, needs no key that may collide and leaves nothing
// behind in a table of the kernel with a fixed size. Package host/posix is for
// what C programs open with sem_open.
//
// # Sets
//
// A set is found by its [Key], a number that programs agree on or make from a
// file ([KeyOf]), or by its id. It belongs to the kernel: it stays until
// somebody removes it or the host restarts, and needs no Close. A shell lists
// all sets with "ipcs -s", one with "ipcs -s -i id", and removes one with
// "ipcrm -s id" or "ipcrm -S key"; [List] and [Remove] do the same.
//
// Keys and ids belong to an IPC namespace. A container has its own unless it
// is told otherwise (docker run --ipc=host or --ipc=container:name), and finds
// no sets of the host.
//
// A set is created and given its values in two steps, and a program that comes
// between them would find zeros. [Create] and [OpenOrCreate] therefore give all
// values in one semop, the first of the set's life, and [Open] waits until
// there was one, which the kernel notes as the time of the last operation. C
// programs do the same by waiting for a sem_otime that is not 0. For sets
// whose creator sets values with semctl alone there is [OpenAny].
//
// # Undo
//
// What a process did with Undo is undone when it ends, however it ends, and
// not before: the kernel adds up its changes to each semaphore and subtracts
// the sum, going no lower than 0 and no higher than 32767. The sum belongs to
// the process. All threads share it, and it outlives the goroutine and the
// thread that did the operation; a child does not inherit it; exec keeps it.
// Hence
//
//   - use Undo for what the process that takes also gives back, and then both
//     times; never where one process takes and another gives;
//   - [Set.SetValue] and [Set.SetValues] forget the sums of all processes: what
//     was held at that moment does not come back by itself.
//
// # Order
//
// The kernel serves waiters that fit. It tries the waiters of one semaphore in order
// of arrival whenever the value changes, but those that want less overtake one that
// wants more than there is, and so does a new caller: under steady load a heavy waiter
// may starve. A waiter that is interrupted by a signal goes to the end of the queue. So
// does a waiter that is stopped, by SIGSTOP or a debugger, but only when it is
// continued: until then it does not wait, and delays no other. A process that was served
// just before it was stopped holds its permits until it is continued, or killed.
//
// # Waiting
//
// A waiter uses a thread. When its context ends, the thread is interrupted by
// SIGURG, as the Go runtime does for reasons of its own; programs that are
// notified of that signal get some more of it, and for those that ignore it
// the context is polled every five milliseconds instead.
//
// # Where
//
// On Linux, on amd64, arm64, riscv64 and loong64. Elsewhere everything fails
// with [errors.ErrUnsupported].
package sysv
