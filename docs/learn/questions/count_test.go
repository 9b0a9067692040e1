// Package questions_test contains a program for each question of the course
// (docs/learn/questions.md).
package questions_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/sema-go/sema"
)

var ctx = context.Background()

// What stays the same while callers acquire and release: free + in use = capacity.
func Example_invariant() {
	s := sema.New(10)
	show := func(when string) {
		st := s.Stats()
		fmt.Printf("%s: %d free + %d in use = %d\n", when, st.Free, st.InUse, st.Free+st.InUse)
	}
	show("at first")
	p, err := s.Acquire(ctx, 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	show("3 acquired")
	p.Release()
	p.Release() // a second release changes nothing
	show("released")
	// Output:
	// at first: 10 free + 0 in use = 10
	// 3 acquired: 7 free + 3 in use = 10
	// released: 10 free + 0 in use = 10
}

// A leak: a path that returns without a release. The capacity shrinks for good.
func Example_leak() {
	s := sema.New(2, sema.Name("db"))
	query := func(fail bool) error {
		p, err := s.Acquire(ctx, 1)
		if err != nil {
			return err
		}
		if fail {
			return errors.New("query failed") // the permit stays acquired
		}
		p.Release()
		return nil
	}
	_ = query(true)
	fmt.Println(s)

	// A deferred release, or Do, covers every path, panics included.
	fixed := func() error {
		return sema.Do(ctx, s, 1, func(context.Context) error { return errors.New("query failed") })
	}
	fmt.Println(fixed())
	fmt.Println(s)
	// Output:
	// semaphore "db": 1 of 2 in use, 0 waiting
	// query failed
	// semaphore "db": 1 of 2 in use, 0 waiting
}

// More releases than acquires: three types, three reactions.
func Example_overRelease() {
	s := sema.New(1)
	p, err := s.Acquire(ctx, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	duplicate := p
	p.Release()
	duplicate.Release()
	fmt.Println("Semaphore:", s.Stats().Free, "free")

	c := sema.NewCounter(1, 1, sema.Name("signal"))
	fmt.Println("Counter:", c.Post(1))

	w := sema.NewWeighted(1) // the drop-in for x/sync, whose permits have no handle
	func() {
		defer func() { fmt.Println("Weighted:", recover()) }()
		w.Release(1)
	}()
	// Output:
	// Semaphore: 1 free
	// Counter: sema: "signal": post 1 of 1 permits: more released than acquired: the counter is at 1
	// Weighted: semaphore: released more than held
}

// A double release of a semaphore without handles admits one caller too many. A channel of
// capacity 10 shows it: the second receive returns the permit of another caller.
func Example_doubleRelease() {
	slots := make(chan struct{}, 10)
	for range 10 {
		slots <- struct{}{} // ten callers work
	}
	<-slots // one of them ends, and releases
	<-slots // and releases again: nine work now, and the channel counts eight
	working := 9
	for len(slots) < cap(slots) {
		slots <- struct{}{}
		working++
	}
	fmt.Println("callers at work with a channel of 10:", working)

	s := sema.New(10)
	var held []sema.Permit
	for range 10 {
		p, err := s.Acquire(ctx, 1)
		if err != nil {
			fmt.Println(err)
			return
		}
		held = append(held, p)
	}
	held[0].Release()
	held[0].Release()
	working = 9
	for {
		if _, err := s.TryAcquire(ctx, 1); err != nil {
			break
		}
		working++
	}
	fmt.Println("callers at work with a semaphore of 10:", working)
	// Output:
	// callers at work with a channel of 10: 11
	// callers at work with a semaphore of 10: 10
}

// Acquire 3 and release 1: the difference is lost, if weights are numbers.
func Example_mismatchedWeights() {
	w := sema.NewWeighted(10)
	if err := w.Acquire(ctx, 3); err != nil {
		fmt.Println(err)
		return
	}
	w.Release(1)
	fmt.Println("in use after the release:", w.Stats().InUse)

	s := sema.New(10)
	p, err := s.Acquire(ctx, 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	p.Release() // a permit knows its weight
	fmt.Println("in use after the release:", s.Stats().InUse)
	// Output:
	// in use after the release: 2
	// in use after the release: 0
}

// Any goroutine may release: the right belongs to the permit and not to a thread.
func Example_releaseElsewhere() {
	s := sema.New(1)
	p, err := s.Acquire(ctx, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	handed := make(chan sema.Permit)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p := <-handed
		p.Release()
	}()
	handed <- p
	<-ended
	fmt.Println("held:", p.Held(), "free:", s.Stats().Free)
	// Output:
	// held: false free: 1
}

// A semaphore of 1 excludes, but has no owner: another goroutine can end a critical section
// that it never entered. With permits it needs the permit for that.
func Example_mutex() {
	lock := sema.NewCounter(1, 1)
	if err := lock.Wait(ctx, 1); err != nil { // one goroutine locks
		fmt.Println(err)
		return
	}
	fmt.Println("unlocked by another one:", lock.Post(1) == nil)

	s := sema.New(1)
	if _, err := s.Acquire(ctx, 1); err != nil {
		fmt.Println(err)
		return
	}
	var none sema.Permit // what a goroutine has that has acquired nothing
	none.Release()
	fmt.Println("free:", s.Stats().Free)
	// Output:
	// unlocked by another one: true
	// free: 0
}

// A recover that releases: if the panic came before the acquire, a semaphore without handles
// gains a permit. A permit that was never acquired is inert.
func Example_releaseInRecover() {
	work := func(release func(), acquire func()) {
		defer func() {
			if recover() != nil {
				release()
			}
		}()
		panic("before the acquire")
	}
	c := sema.NewCounter(10, 100)
	work(func() { fmt.Println("posted:", c.Post(1) == nil) }, nil)
	fmt.Println("counter of 10:", c.Value())

	s := sema.New(10)
	var p sema.Permit
	work(func() { p.Release() }, nil)
	fmt.Println("semaphore of 10:", s.Stats().Free)
	// Output:
	// posted: true
	// counter of 10: 11
	// semaphore of 10: 10
}

// Weight 0 is granted at once, as an inert permit, even if nothing is free.
func Example_weightZero() {
	s := sema.New(0)
	p, err := s.Acquire(ctx, 0)
	fmt.Println(p.Weight(), p.Held(), err)
	// Output:
	// 0 false <nil>
}

// More than the capacity can never be granted: it fails at once instead of waiting.
func Example_tooLarge() {
	s := sema.New(10, sema.Name("db"))
	_, err := s.Acquire(ctx, 25)
	fmt.Println(err)
	fmt.Println(sema.Hint(err))
	// Output:
	// sema: "db": acquire 25 of 10 permits: larger than capacity
	// split the request, or raise the capacity
}

// There is no peek: a try that succeeds has acquired. To look without acquiring, read Stats,
// and do not decide by it.
func Example_tryIsNoPeek() {
	s := sema.New(1)
	p, err := s.TryAcquire(ctx, 1)
	fmt.Println(err, s.Stats().Free)
	p.Release()
	fmt.Println(s.Stats().Free)
	// Output:
	// <nil> 0
	// 1
}

// Everything that is free, at once, and less capacity for good: drainPermits and reducePermits
// of Java.
func Example_drainAndReduce() {
	s := sema.New(10)
	p, err := s.TryAcquireFree(ctx)
	fmt.Println("acquired:", p.Weight(), err)
	p.Release()
	q, err := s.Acquire(ctx, 4)
	if err != nil {
		fmt.Println(err)
		return
	}
	s.Forget(q) // four fewer, for good
	fmt.Println("capacity:", s.Stats().Capacity)
	s.Resize(12) // there is a way up as well
	fmt.Println("capacity:", s.Stats().Capacity)
	// Output:
	// acquired: 10 <nil>
	// capacity: 6
	// capacity: 12
}
