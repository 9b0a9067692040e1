package wfq_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/wfq"
)

// collect runs the garbage collector and the cleanups until done, for at most a minute.
func collect(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		runtime.GC()
		if done() {
			return
		}
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func classCount(q *wfq.Queue) (n int) {
	for range q.Classes() {
		n++
	}
	return n
}

// TestQueue_ForgetsIdleClasses uses a million classes once. It is not parallel, since it
// measures the memory of the process.
func TestQueue_ForgetsIdleClasses(t *testing.T) {
	classes := 1_000_000
	if raceEnabled || testing.Short() {
		classes = 100_000
	}
	for range 3 {
		runtime.GC()
	}
	before := heapInUse()
	q := wfq.New(10)
	for i := range classes {
		p, err := q.Class(fmt.Sprint("user ", i)).Acquire(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		p.Release()
	}
	collect(t, "classes remain", func() bool { return classCount(q) == 0 })
	var after int64
	collect(t, fmt.Sprintf("more than 1 MB remains after %d classes", classes), func() bool {
		after = heapInUse()
		return after-before < 1<<20
	})
	t.Logf("%d classes leave %d bytes", classes, after-before)
	if st := q.Stats(); st.Acquired != int64(classes) {
		t.Errorf("%d permits acquired, want %d: counters must not shrink", st.Acquired, classes)
	}
	runtime.KeepAlive(q)
}

// TestQueue_ForgetsClassesThatCompeted uses many classes once while callers wait, so that
// all of them have used more than those that never came.
func TestQueue_ForgetsClassesThatCompeted(t *testing.T) {
	const classes = 2000
	q := wfq.New(1)
	held, served := mustAcquire(t, q.Class("first"), 1), make(chan sema.Permit)
	for i := range classes {
		go func() {
			p, err := q.Class(fmt.Sprint("user ", i)).Acquire(ctx, 1)
			if err != nil {
				t.Error(err)
			}
			served <- p
		}()
	}
	for q.Stats().Waiters < classes {
		runtime.Gosched()
	}
	for range classes {
		held.Release()
		held = <-served
	}
	held.Release()
	collect(t, "classes remain", func() bool { return classCount(q) == 0 })
}

// TestQueue_ForgetsClassesThatHeld checks that a class is forgotten that held permits when
// the garbage collector ran, although the queue is calm when they are released.
func TestQueue_ForgetsClassesThatHeld(t *testing.T) {
	t.Parallel()
	q := wfq.New(100)
	var held []sema.Permit
	for i := range 100 {
		held = append(held, mustAcquire(t, q.Class(fmt.Sprint(i)), 1))
	}
	collect(t, "no class is an orphan", func() bool { return q.Orphans() == 100 })
	for _, p := range held {
		p.Release()
	}
	if n := q.Orphans(); n != 0 {
		t.Errorf("%d classes remain", n)
	}
}

// TestQueue_ForgetsTiers checks that tiers without classes are forgotten.
func TestQueue_ForgetsTiers(t *testing.T) {
	t.Parallel()
	q := wfq.New(1)
	for i := range 1000 {
		q.Set("a", wfq.Share{Tier: i})
	}
	if n := q.Tiers(); n > 1 {
		t.Errorf("%d tiers remain", n)
	}
	q.Unset("a")
	collect(t, "a class that was unset remains", func() bool { return classCount(q) == 0 })
	if n := q.Tiers(); n != 0 {
		t.Errorf("%d tiers remain", n)
	}
}

func TestQueue_KeepsClassesThatAreNeeded(t *testing.T) {
	t.Parallel()
	q := wfq.New(10)
	q.Set("set", wfq.Share{Weight: 3})
	held := mustAcquire(t, q.Class("holds"), 2)
	q.Set("bounded", wfq.Share{Max: 1})
	used := q.Class("used")
	q.Class("idle")
	q.Class("dropped").TryAcquire(ctx, 1) //semavet:ignore a leak: its weight still counts
	collect(t, "an idle class remains", func() bool {
		for name := range q.Classes() {
			if name == "idle" {
				return false
			}
		}
		return true
	})
	names := map[string]wfq.Stats{}
	for name, st := range q.Classes() {
		names[name] = st
	}
	for _, name := range []string{"set", "holds", "bounded", "used", "dropped"} {
		if _, ok := names[name]; !ok {
			t.Errorf("class %q is gone", name)
		}
	}
	if st := q.Class("holds").Stats(); st.InUse != 2 {
		t.Errorf("%d in use, want 2: the class is another one", st.InUse)
	}
	if q.Class("used") != used {
		t.Error("two Classes of one name in use")
	}
	if s := q.Class("set").Share(); s.Weight != 3 {
		t.Errorf("%+v: the share is gone", s)
	}
	held.Release()
	collect(t, "a class remains after its permits were released", func() bool { return classCount(q) == 4 })
	runtime.KeepAlive(used)
}

// TestQueue_IsCollected checks that nothing keeps a queue with classes.
func TestQueue_IsCollected(t *testing.T) {
	t.Parallel()
	create := func() weak.Pointer[wfq.Queue] {
		q := wfq.New(1)
		q.Set("a", wfq.Share{})
		mustAcquire(t, q.Class("b"), 1).Release()
		return weak.Make(q)
	}
	p := create()
	collect(t, "the queue is not collected", func() bool { return p.Value() == nil })
}

func TestWith_SelectsTheClass(t *testing.T) {
	t.Parallel()
	q := wfq.New(10, sema.Name("db"))
	p := mustAcquire(t, q, 1)
	paid := wfq.With(ctx, "paid")
	var none context.Context
	if wfq.ClassOf(paid) != "paid" || wfq.ClassOf(ctx) != "" || wfq.ClassOf(none) != "" {
		t.Error("ClassOf")
	}
	a, err := q.Acquire(paid, 2)
	if err != nil {
		t.Fatal(err)
	}
	if st := q.Class("paid").Stats(); st.InUse != 2 {
		t.Errorf("%+v", st)
	}
	if st := q.Class("").Stats(); st.InUse != 1 {
		t.Errorf("%+v", st)
	}
	if text := q.Class("paid").String(); !strings.Contains(text, `class "paid": 2 of 10 in use, 0 waiting, of fair queue "db"`) {
		t.Error(text)
	}
	p.Release()
	a.Release()
}
