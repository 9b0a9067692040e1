package classic

import (
	"fmt"
	"log/slog"
	"sync"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/describe"
	"github.com/sema-go/sema/internal/seal"
)

// A Preference decides which side an [RWLock] serves first when readers and writers wait.
type Preference uint8

const (
	// FairRW serves readers and writers in order of arrival. Readers next to each other in
	// the queue share the lock. None starves.
	FairRW Preference = iota
	// PreferReaders serves readers while no writer holds the lock, also those that arrive
	// while writers wait. Writers may starve. It suits caches: reads that must not wait, and
	// writes that can.
	PreferReaders
	// PreferWriters serves no reader while a writer waits. Readers may starve. It suits
	// state that is read often and must be recent: configuration, routes.
	PreferWriters
)

// String returns the name of the constant.
func (p Preference) String() string {
	switch p {
	case FairRW:
		return "FairRW"
	case PreferReaders:
		return "PreferReaders"
	case PreferWriters:
		return "PreferWriters"
	}
	return fmt.Sprintf("Preference(%d)", uint8(p))
}

// An RWLock is a lock that either readers share or one writer holds. Create it with
// [NewRWLock]. It is safe for concurrent use.
//
// [RWLock.Reader] and [RWLock.Writer] are its gates, so that [sema.Do], [sema.AcquireAll],
// observers and diagnostics apply. Observers receive events of the class "read" or "write".
//
// It is not reentrant, as no lock in Go is. A holder that acquires again may wait for
// itself: a reader that wants to write always does, and a reader that wants to read once
// more does if a writer waits in between. With [sema.DiagnoseFull], or if the context carries
// the permit, both are reported as deadlocks.
type RWLock struct {
	preference Preference
	read       rwGate
	write      rwGate

	mu       sync.Mutex // guards what follows, and the queues and counts of the gates
	readers  int64      // permits held by readers
	writing  bool       // a writer holds the lock; then readers is 0
	closed   bool
	arrivals uint64 // numbers the waiters
}

// An RWOption configures [NewRWLock]: [MaxReaders], or a [sema.SharedOption] such as
// [sema.Name], [sema.MaxWait], [sema.MaxWaiters] and [sema.Observe]. NewRWLock panics on
// options of other packages.
type RWOption interface{ SharedOption(seal.Key) }

// maxReaders is the option MaxReaders.
type maxReaders int64

// SharedOption implements [RWOption].
func (maxReaders) SharedOption(seal.Key) {}

// MaxReaders bounds how many readers share the lock, or the sum of their weights. It
// panics unless n is positive. Default: no bound.
func MaxReaders(n int64) RWOption {
	if n < 1 || n > sema.MaxCapacity {
		panic(fmt.Sprintf("classic: MaxReaders(%d): want 1 to %d", n, sema.MaxCapacity))
	}
	return maxReaders(n)
}

// NewRWLock returns a lock that is free. [sema.MaxWaiters] bounds readers and writers apart.
func NewRWLock(p Preference, opts ...RWOption) *RWLock {
	if p > PreferWriters {
		panic(fmt.Sprintf("classic: NewRWLock(%v): want FairRW, PreferReaders or PreferWriters", p))
	}
	l := &RWLock{preference: p}
	most := sema.MaxCapacity
	var shared []sema.SharedOption
	for _, opt := range opts {
		switch o := opt.(type) {
		case maxReaders:
			most = int64(o)
		case sema.SharedOption:
			shared = append(shared, o)
		default:
			panic(fmt.Sprintf("classic: NewRWLock: %T is not an option of a lock (hint: use classic.MaxReaders and those that are a sema.SharedOption)", opt))
		}
	}
	whole := sema.NewMonitor(watched{stats: l.whole}, shared...)
	l.read.init(l, "read", most, whole, shared)
	l.write.init(l, "write", 1, whole, shared)
	return l
}

// Reader returns the gate of readers. Its capacity is that of the option [MaxReaders], and
// its permits have any weight.
func (l *RWLock) Reader() sema.Gate { return &l.read }

// Writer returns the gate of writers. It has one permit.
func (l *RWLock) Writer() sema.Gate { return &l.write }

// Close rejects waiters and new callers with [sema.ErrClosed]. Permits that are held stay
// valid. Close always returns nil.
func (l *RWLock) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	for _, g := range []*rwGate{&l.read, &l.write} {
		for w := range g.queue.All {
			g.counts.Failed(sema.ErrClosed, true)
			w.endLocked(sema.ErrClosed)
		}
	}
	l.mu.Unlock()
	l.read.monitor.Report(sema.Event{Kind: sema.EventClosed})
	l.write.monitor.Report(sema.Event{Kind: sema.EventClosed})
	return nil
}

// Name returns the name that the option [sema.Name] set, or "".
func (l *RWLock) Name() string { return l.read.Name() }

// RWStats is the state of a lock at one instant. Free is what can be acquired now: while
// one side holds the lock, the other has 0 free and 0 in use.
type RWStats struct {
	Readers, Writers sema.Stats
}

// Stats returns a snapshot.
func (l *RWLock) Stats() RWStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return RWStats{Readers: l.read.statsLocked(), Writers: l.write.statsLocked()}
}

// whole returns the state of both sides together, for the deadlock audit.
func (l *RWLock) whole() sema.Stats {
	st := l.Stats()
	return sema.Stats{Capacity: st.Readers.Capacity, InUse: st.Readers.InUse + st.Writers.InUse, Waiters: st.Readers.Waiters + st.Writers.Waiters}
}

// String returns the name and the state in one line.
func (l *RWLock) String() string {
	st := l.Stats()
	held := "free"
	switch {
	case st.Writers.InUse > 0:
		held = "held by a writer"
	case st.Readers.InUse > 0:
		held = fmt.Sprintf("held by readers (%d)", st.Readers.InUse)
	}
	return fmt.Sprintf("%s: %v, %s, %d readers and %d writers waiting%s",
		describe.Title("lock", l.Name()), l.preference, held, st.Readers.Waiters, st.Writers.Waiters, suffix(st.Readers.Closed))
}

// GoString returns the same as String.
func (l *RWLock) GoString() string { return l.String() }

// LogValue implements [slog.LogValuer].
func (l *RWLock) LogValue() slog.Value { return slog.StringValue(l.String()) }
