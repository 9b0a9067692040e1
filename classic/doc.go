// Package classic provides the structures of the textbooks on semaphores, with contexts,
// bounds on waiting, observers and diagnostics as all gates of Sema have them.
//
//		jobs := classic.NewBuffer[Job](128, sema.Name("jobs"), sema.MaxWait(time.Second))
//		err := jobs.Put(ctx, job)                     // waits while the buffer is full
//		n, err := jobs.TakeUpTo(ctx, batch)           // waits while it is empty
//
//		config := classic.NewRWLock(classic.FairRW, sema.Name("config"))
//		err := sema.Do(ctx, config.Reader(), 1, read) // readers share, a writer is alone
//
//	  - [Buffer] is the bounded buffer of producers and consumers. [TakeAny] takes from
//	    several of them.
//	  - [RWLock] is the lock of readers and writers, with a choice of which may starve.
//	  - [Rendezvous] lets two goroutines meet and exchange values.
//	  - [Barrier] lets n goroutines start each phase together.
//	  - [Turnstile] admits one goroutine at a time, and none while it is held.
//	  - [Table] is the table of the dining philosophers: one strategy that deadlocks, and four
//	    that cannot.
//
// The examples contain further problems of Allen Downey's "Little Book of Semaphores":
// smokers, barbers, savages and others. docs/classic.md starts from a problem, and leads
// to the structure that solves it.
//
// What it promises: waiters are served in order of arrival, unless a [Preference] states
// otherwise. A caller whose context ends loses nothing and leaves nothing behind. A wait
// starts no goroutine, and a Buffer allocates nothing (a TakeAny that waits does).
//
// Prefer the language where it suffices. A channel is the better buffer for values that a
// select has to combine with other channels, and between two goroutines that need no batches,
// no fairness and no report. A [sync.RWMutex] is faster where no caller waits for long, and a
// [sync.WaitGroup] is the barrier that is used once. Use this package if a wait has to end
// with a context or a timeout, if an operator has to see it, or if a buffer moves batches.
package classic
