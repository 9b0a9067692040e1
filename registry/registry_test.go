package registry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/pool"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/registry"
	"github.com/sema-go/sema/wfq"
)

func TestRegistry_ListsEveryKindOfGate(t *testing.T) {
	t.Parallel()
	r := registry.New()
	client := fleet.New(memstore.New())
	defer client.Close(context.Background())
	wide, err := client.Semaphore("wide", 5)
	if err != nil {
		t.Fatal(err)
	}
	r.Semaphore("semaphore", 1, "why")
	r.Add("striped", sema.NewStriped(2), "why")
	r.Add("counter", sema.NewCounter(0, 3), "why")
	r.Add("weighted", sema.NewWeighted(4), "why")
	r.Add("rate", rate.New(6, time.Second), "why")
	r.Add("queue", wfq.New(7), "why")
	items := pool.New(pool.Config[int]{Size: 8, Open: func(context.Context) (int, error) { return 0, nil }, Close: func(int) {}})
	defer items.Close()
	r.Add("pool", items, "why")
	r.Add("fleet", wide, "why")
	r.Add("own", &stored{capacity: 9}, "why")

	var got []string
	for name, l := range r.All() {
		if name != l.Name || l.Why != "why" || !strings.HasPrefix(l.Site, "registry/registry_test.go:") || l.Gate == nil {
			t.Errorf("%q: %+v", name, l)
		}
		got = append(got, fmt.Sprintf("%s %s %v %T %v", name, l.Kind, l.Value, l.Details, l.Shared))
	}
	want := []string{
		"counter sema.Counter 3 sema.Stats false",
		"fleet fleet.Semaphore 5 fleet.Stats true",
		"own registry_test.stored 9 registry_test.storedStats true",
		"pool pool.Pool 8 pool.Stats false",
		"queue wfq.Queue 7 sema.Stats false",
		"rate rate.Gate 6 per 1s sema.Stats false",
		"semaphore sema.Semaphore 1 sema.Stats false",
		"striped sema.Striped 2 sema.Stats false",
		"weighted sema.Weighted 4 sema.Stats false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for range r.All() {
		break // stops early
	}
}

func TestRegistry_NameIsRegisteredOnce(t *testing.T) {
	t.Parallel()
	r := registry.New()
	r.Semaphore("db", 1, "the first reason")
	first, _ := r.Get("db")
	wantPanic(t, func() { r.Semaphore("db", 2, "the second reason") },
		`"db"`, "the first reason", "the second reason", first.Site, "at registry/registry_test.go:")
	wantPanic(t, func() { r.Add("db", sema.New(1), "the third reason") }, "the first reason", "the third reason")
	if l, _ := r.Get("db"); l.Why != "the first reason" || l.Value.Capacity != 1 {
		t.Errorf("the first registration changed: %+v", l)
	}
}

func TestRegistry_GateIsRegisteredOnce(t *testing.T) {
	t.Parallel()
	r := registry.New()
	s := r.Semaphore("db", 1, "a")
	wantPanic(t, func() { r.Add("database", s, "b") }, `"db"`, `"database"`)
	r.Remove("db")
	r.Add("database", s, "b")
}

func TestRegistry_RejectsBadArguments(t *testing.T) {
	t.Parallel()
	r := registry.New()
	for _, name := range []string{"", " db", "db\n", "d\x00b", "\xff", "a\u202eb", strings.Repeat("x", 201)} {
		wantPanic(t, func() { r.Semaphore(name, 1, "why") }, "registry: Semaphore(", "name", "want")
		wantPanic(t, func() { r.Expect(name) }, "registry: Expect(")
	}
	wantPanic(t, func() { r.Semaphore("db", 1, " ") }, "why", "what breaks")
	wantPanic(t, func() { r.Semaphore("db", -1, "why") }, "-1", "negative")
	wantPanic(t, func() { r.Add("db", nil, "why") }, "nil")
	wantPanic(t, func() { r.Add("db", (*sema.Semaphore)(nil), "why") }, "nil")
	wantPanic(t, func() { r.Add("db", time.Now(), "why") }, "time.Time", "Stats")
	wantPanic(t, func() { registry.Log(nil) }, "nil")
	wantPanic(t, func() { registry.PollEvery(0) }, "positive")
	wantPanic(t, func() { registry.MaxChange(1) }, "above 1")
	if n := len(slices.Collect(keys(r))); n != 0 {
		t.Errorf("%d limits were registered", n)
	}
}

func keys(r *registry.Registry) func(func(string) bool) {
	return func(yield func(string) bool) {
		for name := range r.All() {
			if !yield(name) {
				return
			}
		}
	}
}

func TestRegistry_ZeroValueWorks(t *testing.T) {
	t.Parallel()
	var r registry.Registry
	s := r.Semaphore("db", 3, "why", sema.Name("other"))
	if s.Name() != "db" {
		t.Errorf("name %q, want that of the registry", s.Name())
	}
	mustLoad(t, &r, `{"limits": {"db": {"capacity": 4}}}`)
	wantCapacity(t, s, 4)
	if text := r.String(); !strings.HasPrefix(text, "registry: 1 limits, 1 set by ") {
		t.Errorf("String %q", text)
	}
}

func TestRegistry_RemoveForgetsAllButTheFile(t *testing.T) {
	t.Parallel()
	var log journal
	r := registry.New(registry.Log(log.logger()))
	r.Semaphore("db", 3, "why")
	mustLoad(t, r, `{"limits": {"db": {"capacity": 4}}}`)
	if !r.Remove("db") || r.Remove("db") {
		t.Error("Remove should report true once")
	}
	if _, ok := r.Get("db"); ok {
		t.Error("a removed limit is listed")
	}
	resized := 0
	s := r.Semaphore("db", 5, "why", sema.Observe(sema.ObserverFunc(func(e sema.Event) {
		if e.Kind == sema.EventResized {
			resized++
		}
	})))
	wantCapacity(t, s, 4)
	if resized != 0 {
		t.Error("a configured semaphore was created with another capacity first")
	}
	r.Remove("db")
	if err := load(t, r, `{"limits": {"db": {"capacity": 4}}}`); err == nil {
		t.Error("a removed name is accepted")
	}
	g := rate.New(1, time.Second)
	r.Add("db", g, "why")
	if l, _ := r.Get("db"); l.Problem == nil || !errors.Is(l.Problem, sema.ErrInvalid) || !l.Configured {
		t.Errorf("a setting that does not fit has no problem: %+v", l)
	}
}

func TestRegistry_ExpectAllowsNamesBeforeTheyExist(t *testing.T) {
	t.Parallel()
	r := registry.New()
	r.Expect("db", "tenant/*")
	mustLoad(t, r, `{"limits": {"db": {"capacity": 4}, "tenant/a": {"capacity": 5}}}`)
	wantCapacity(t, r.Semaphore("db", 1, "why"), 4)
	own := sema.New(1)
	r.Add("tenant/a", own, "why")
	wantCapacity(t, own, 5)
	for _, name := range []string{"db2", "tenant", "d"} {
		if err := load(t, r, `{"limits": {"`+name+`": {"capacity": 4}}}`); err == nil {
			t.Errorf("%q is accepted", name)
		}
	}
}

func TestRegistry_DefaultServesPackages(t *testing.T) {
	t.Parallel()
	registry.Semaphore("TestRegistry_DefaultServesPackages", 1, "why")
	registry.Add("TestRegistry_DefaultServesPackages/2", sema.New(1), "why")
	for _, name := range []string{"TestRegistry_DefaultServesPackages", "TestRegistry_DefaultServesPackages/2"} {
		if l, ok := registry.Default.Get(name); !ok || !strings.HasPrefix(l.Site, "registry/registry_test.go:") {
			t.Errorf("%q: %+v", name, l)
		}
		registry.Default.Remove(name)
	}
}

func TestLimit_ClassesAreThoseOfTheQueue(t *testing.T) {
	t.Parallel()
	r := registry.New()
	q := wfq.New(4)
	q.Set("paid", wfq.Share{Weight: 3})
	r.Add("api", q, "why")
	r.Semaphore("db", 1, "why")
	count := func(name string) (n int) {
		l, _ := r.Get(name)
		for class, st := range l.Classes() {
			if class != "paid" || st.Share.Weight != 3 {
				t.Errorf("class %q: %+v", class, st)
			}
			n++
		}
		return n
	}
	if count("api") != 1 || count("db") != 0 {
		t.Error("wrong number of classes")
	}
}

func TestValue_Text(t *testing.T) {
	t.Parallel()
	for want, v := range map[string]registry.Value{
		"40": {Capacity: 40}, "unlimited": {Capacity: sema.MaxCapacity}, "100 per 1s": {Capacity: 100, Window: time.Second}, "0": {},
	} {
		if v.String() != want {
			t.Errorf("%+v: %q, want %q", v, v.String(), want)
		}
	}
}

func TestRegistry_EachSetsOptionsOfItsSemaphores(t *testing.T) {
	t.Parallel()
	var names []string
	observer := sema.ObserverFunc(func(e sema.Event) {
		if e.Kind == sema.EventAcquired {
			names = append(names, e.Name)
		}
	})
	r := registry.New(registry.Each(sema.Observe(observer)), registry.Each(sema.MaxWaiters(0)))
	a, b := r.Semaphore("a", 1, "why"), r.Semaphore("b", 1, "why", sema.MaxWaiters(1))
	for _, s := range []*sema.Semaphore{a, b} {
		p, err := s.Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Release()
	}
	if _, err := a.Acquire(t.Context(), 1); !errors.Is(err, sema.ErrQueueFull) {
		t.Errorf("error %v, want queue full", err)
	}
	if !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("events of %q, want those of both", names)
	}
}

func TestRegistry_ObservedFindsTheGateOfAnEvent(t *testing.T) {
	t.Parallel()
	r := registry.New()
	r.Semaphore("db", 1, "why")
	r.Add("first", sema.New(2, sema.Name("pg")), "why")
	r.Add("again", sema.New(3, sema.Name("pg")), "why")
	r.Add("unnamed", sema.New(4), "why")
	want := func(event, name string) {
		t.Helper()
		if l, ok := r.Observed(event); l.Name != name || ok != (name != "") {
			t.Errorf("events of %q are about %q, want %q", event, l.Name, name)
		}
	}
	want("db", "db")
	want("pg", "first")
	want("first", "")
	want("unnamed", "unnamed")
	r.Remove("first")
	want("pg", "again")
	r.Remove("again")
	want("pg", "")
}
