package classic

import (
	"context"
	"fmt"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/describe"
)

// A Strategy is the way in which the philosophers at a [Table] take their two forks.
type Strategy uint8

const (
	// Naive takes the left fork, then the right one. It deadlocks once all philosophers
	// hold their left fork. It is for tests and lessons.
	Naive Strategy = iota
	// LowerFirst takes the fork of the lower number first: a global order, in which no circle
	// of waits can form.
	LowerFirst
	// OneLeftHanded takes the right fork first, except that philosopher 0 takes the left one
	// first: the circle has one place where it cannot close.
	OneLeftHanded
	// Arbiter lets all philosophers but one take forks at a time, the left one first. So at
	// least one of them gets both.
	Arbiter
	// BothOrNone takes both forks at once with [sema.AcquireAll], and holds none while it
	// waits.
	BothOrNone
)

// String returns the name of the constant.
func (s Strategy) String() string {
	if names := [...]string{"Naive", "LowerFirst", "OneLeftHanded", "Arbiter", "BothOrNone"}; int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("Strategy(%d)", uint8(s))
}

// A Table is the table of the dining philosophers: n resources in a circle, the forks, and
// n users, each of which needs two neighbouring ones. Create it with [NewTable] or
// [NewTableOf].
type Table struct {
	strategy Strategy
	name     string
	forks    []sema.Gate
	arbiter  *sema.Semaphore // nil unless the strategy needs it
	seats    []seat
}

// NewTable returns a table for n philosophers. It panics if n is less than 2. The forks are
// semaphores with the options, named "fork 0" to "fork n-1" after the name of the table. So
// [sema.MaxWait] bounds the wait for each fork, and diagnostics name the forks of a deadlock.
func NewTable(n int, s Strategy, opts ...sema.SharedOption) *Table {
	if n < 2 {
		panic(fmt.Sprintf("classic: NewTable(%d): want 2 philosophers or more", n))
	}
	forks := make([]sema.Gate, n)
	for i := range forks {
		forks[i] = newFork(fmt.Sprint("fork ", i), 1, opts)
	}
	return newTable(s, forks, opts)
}

// newFork returns a semaphore of a table. Its name follows that of the table.
func newFork(name string, capacity int64, opts []sema.SharedOption) *sema.Semaphore {
	if table := sema.SettingsOf(opts...).Name; table != "" {
		name = table + " " + name
	}
	all := make([]sema.Option, 0, len(opts)+1)
	for _, opt := range opts {
		all = append(all, opt)
	}
	return sema.New(capacity, append(all, sema.Name(name))...)
}

// NewTableOf returns a table with these gates as forks, fork i to the left of philosopher i.
// It panics if there are less than 2, or one is nil. [BothOrNone] needs forks that are
// semaphores of package sema: of other gates it holds one while it waits for the next, in
// the order of their names.
func NewTableOf(s Strategy, forks ...sema.Gate) *Table {
	if len(forks) < 2 {
		panic(fmt.Sprintf("classic: NewTableOf with %d forks: want 2 or more", len(forks)))
	}
	for i, f := range forks {
		if f == nil {
			panic(fmt.Sprintf("classic: NewTableOf: fork %d is nil", i))
		}
	}
	return newTable(s, forks, nil)
}

func newTable(s Strategy, forks []sema.Gate, opts []sema.SharedOption) *Table {
	if s > BothOrNone {
		panic(fmt.Sprintf("classic: %v is not a strategy of this package", s))
	}
	t := &Table{strategy: s, name: sema.SettingsOf(opts...).Name, forks: forks, seats: make([]seat, len(forks))}
	if s == Arbiter {
		t.arbiter = newFork("arbiter", int64(len(forks)-1), opts)
	}
	for i := range t.seats {
		t.seats[i] = seat{t, i}
	}
	return t
}

// Seats returns the number of philosophers.
func (t *Table) Seats() int { return len(t.seats) }

// Seat returns philosopher i as a gate of one permit, which stands for both forks. It panics
// if there is no such seat.
func (t *Table) Seat(i int) sema.Gate { return &t.seats[i] }

// Name returns the name that the option [sema.Name] set, or "".
func (t *Table) Name() string { return t.name }

// String returns the name and the strategy.
func (t *Table) String() string {
	return fmt.Sprintf("%s: %d philosophers, %v", describe.Title("table", t.name), len(t.seats), t.strategy)
}

// A seat is the gate of one philosopher.
type seat struct {
	table *Table
	i     int
}

// Acquire implements [sema.Gate].
func (s *seat) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	if n != 1 || ctx == nil {
		return sema.Permit{}, s.reject(ctx, "acquire", n)
	}
	if s.table.strategy != BothOrNone {
		return s.takeForks(ctx, sema.Gate.Acquire)
	}
	first, second := s.forks()
	both, err := sema.AcquireAll(ctx, sema.Want{Gate: first, N: 1}, sema.Want{Gate: second, N: 1})
	if err != nil {
		return sema.Permit{}, err
	}
	return sema.NewPermit(1, both), nil
}

// TryAcquire implements [sema.Gate].
func (s *seat) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	if n != 1 || ctx == nil {
		return sema.Permit{}, s.reject(ctx, "try", n)
	}
	return s.takeForks(ctx, sema.Gate.TryAcquire)
}

// Name returns the name of the seat.
func (s *seat) Name() string {
	name := fmt.Sprint("seat ", s.i)
	if s.table.name != "" {
		name = s.table.name + " " + name
	}
	return name
}

// takeForks acquires what the strategy needs, one after the other. If it fails or panics, it
// returns what it has acquired.
func (s *seat) takeForks(ctx context.Context, acquire func(sema.Gate, context.Context, int64) (sema.Permit, error)) (sema.Permit, error) {
	m := &meal{}
	served := false
	defer func() {
		if !served {
			m.Release()
		}
	}()
	first, second := s.forks()
	needs := [...]sema.Gate{first, second, nil}
	if s.table.arbiter != nil {
		needs = [...]sema.Gate{s.table.arbiter, first, second}
	}
	for _, gate := range needs {
		if gate == nil {
			break
		}
		p, err := acquire(gate, ctx, 1)
		if err != nil {
			return sema.Permit{}, err
		}
		m.permits[m.n] = p
		m.n++
	}
	served = true
	return sema.NewPermit(1, m), nil
}

// reject returns the error of a call whose arguments are not those of one permit; nil for
// weight 0.
func (s *seat) reject(ctx context.Context, op string, n int64) error {
	fault := &sema.Error{Op: op, Name: s.Name(), Weight: n, Capacity: 1, Err: sema.ErrInvalid}
	switch {
	case ctx == nil:
		fault.Detail = errNilContext.detail
	case n < 0:
		fault.Detail = errNegative.detail
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case n == 0:
		return nil
	default:
		fault.Err = sema.ErrTooLarge
	}
	return fault
}

// forks returns the forks of the seat in the order in which the strategy takes them.
func (s *seat) forks() (first, second sema.Gate) {
	left, right := s.i, (s.i+1)%len(s.table.forks)
	switch s.table.strategy {
	case LowerFirst:
		left, right = min(left, right), max(left, right)
	case OneLeftHanded:
		if s.i != 0 {
			left, right = right, left
		}
	}
	return s.table.forks[left], s.table.forks[right]
}

// A meal is what a philosopher holds.
type meal struct {
	permits [3]sema.Permit
	n       int
}

// Release implements [sema.Lease]. It returns what was taken last first.
func (m *meal) Release() {
	for i := m.n - 1; i >= 0; i-- {
		m.permits[i].Release()
	}
}

// Err implements [sema.Permit.Err]: why one of the forks was lost, if they can be.
func (m *meal) Err() error {
	for _, p := range m.permits[:m.n] {
		if err := p.Err(); err != nil {
			return err
		}
	}
	return nil
}
