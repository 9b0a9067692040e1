package fleet_test

import (
	"context"
	"io/fs"
	"maps"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
)

// TestOption_AcceptsSharedOptionsOnly checks which types implement Option: others do not compile
// as arguments.
func TestOption_AcceptsSharedOptionsOnly(t *testing.T) {
	t.Parallel()
	option := reflect.TypeFor[fleet.Option]()
	for _, of := range []reflect.Type{
		reflect.TypeFor[sema.SharedOption](), reflect.TypeFor[fleet.Mode](), reflect.TypeOf(sema.CallSites), reflect.TypeOf(fleet.TTL(time.Second)),
	} {
		if !of.Implements(option) {
			t.Errorf("%v is not accepted", of)
		}
	}
	for _, of := range []reflect.Type{reflect.TypeFor[sema.Order](), reflect.TypeFor[sema.Option](), reflect.TypeOf(sema.ParkOversize)} {
		if of.Implements(option) {
			t.Errorf("%v is accepted", of)
		}
	}
	if reflect.TypeOf(fleet.TTL(time.Second)).Implements(reflect.TypeFor[sema.Option]()) {
		t.Error("sema.New accepts an option of a fleet semaphore")
	}
}

func TestClient_SemaphoreAgain(t *testing.T) {
	t.Parallel()
	c := fleet.New(memstore.New())
	defer c.Close(t.Context())
	first, err := c.Semaphore("db", 4, sema.MaxWait(time.Second), fleet.Labels(map[string]string{"a": "b"}))
	wantErr(t, err, nil)
	for what, again := range map[string]struct {
		spec
		want error
	}{
		"the same":         {of(4, fleet.Labels(map[string]string{"a": "b"}), sema.MaxWait(time.Second)), nil},
		"the default TTL":  {of(4, fleet.Labels(map[string]string{"a": "b"}), sema.MaxWait(time.Second), fleet.TTL(15*time.Second)), nil},
		"existing":         {of(fleet.Existing, fleet.Labels(map[string]string{"a": "b"}), sema.MaxWait(time.Second)), nil},
		"other capacity":   {of(5, fleet.Labels(map[string]string{"a": "b"}), sema.MaxWait(time.Second)), sema.ErrInvalid},
		"other MaxWait":    {of(4, fleet.Labels(map[string]string{"a": "b"})), sema.ErrInvalid},
		"other MaxWaiters": {of(4, fleet.Labels(map[string]string{"a": "b"}), sema.MaxWait(time.Second), sema.MaxWaiters(3)), sema.ErrInvalid},
	} {
		got, err := c.Semaphore("db", again.capacity, again.opts...)
		wantErr(t, err, again.want)
		if err == nil && got != first {
			t.Errorf("%s: got another semaphore", what)
		}
	}
	_, err = c.Semaphore("db", 5, sema.MaxWait(time.Minute), fleet.Labels(map[string]string{"a": "b"}), fleet.TTL(30*time.Second))
	if want := "other options: Capacity 4, not 5, TTL 15s, not 30s, maxWait 1s, not 1m0s"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q in it", err, want)
	}
}

func TestSemaphore_WaitsWithoutABound(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			a, _ := newClient(t, store)
			b, _ := newClient(t, store)
			p := mustAcquire(t, semaphore(t, a, of(1, mode)), 1)
			start := time.Now()
			time.AfterFunc(3*time.Hour, p.Release)
			mustAcquire(t, semaphore(t, b, of(1, mode)), 1).Release()
			if waited := time.Since(start); waited < 3*time.Hour {
				t.Errorf("mode %d: granted after %v", mode, waited)
			}
		})
	}
}

func TestSemaphore_UnavailableAfter(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		opts []fleet.Option
		want time.Duration
	}{
		"default":         {nil, time.Minute},
		"longer":          {[]fleet.Option{fleet.UnavailableAfter(time.Hour)}, time.Hour},
		"MaxWait shorter": {[]fleet.Option{fleet.UnavailableAfter(time.Hour), sema.MaxWait(7 * time.Second)}, 7 * time.Second},
		"MaxWait longer":  {[]fleet.Option{fleet.UnavailableAfter(3 * time.Second), sema.MaxWait(time.Hour)}, 3 * time.Second},
	} {
		for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
			t.Run(what, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					client, link := newClient(t, memstore.New())
					link.cut.Store(true)
					start := time.Now()
					_, err := semaphore(t, client, of(1, c.opts...).with(mode)).Acquire(t.Context(), 1)
					wantErr(t, err, sema.ErrUnavailable)
					if took := time.Since(start); took < c.want || took > c.want+time.Second {
						t.Errorf("mode %d: it took %v, want %v", mode, took, c.want)
					}
				})
			})
		}
	}
}

// TestSemaphore_UnavailableWhileQueued checks that a queued caller waits for UnavailableAfter from
// the time at which the store stops replying, not from the time at which it was queued.
func TestSemaphore_UnavailableWhileQueued(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			a, _ := newClient(t, store)
			b, link := newClient(t, store)
			mustAcquire(t, semaphore(t, a, of(1, mode)), 1)
			time.AfterFunc(10*time.Minute, func() { link.cut.Store(true) })
			start := time.Now()
			_, err := semaphore(t, b, of(1, mode)).Acquire(t.Context(), 1)
			wantErr(t, err, sema.ErrUnavailable)
			if took := time.Since(start); took < 11*time.Minute || took > 12*time.Minute {
				t.Errorf("mode %d: it took %v", mode, took)
			}
		})
	}
}

func TestSemaphore_Existing(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			a, _ := newClient(t, store)
			s := semaphore(t, a, of(fleet.Existing, mode))
			for range 2 {
				_, err := s.Acquire(t.Context(), 1)
				wantErr(t, err, fs.ErrNotExist)
				_, err = s.TryAcquire(t.Context(), 1)
				wantErr(t, err, fs.ErrNotExist)
			}
			if _, err := store.Inspect(t.Context(), "db"); err == nil {
				t.Error("the semaphore was created")
			}
			b, _ := newClient(t, store)
			mustAcquire(t, semaphore(t, b, of(3, fleet.TTL(time.Minute))), 1).Release()
			time.Sleep(time.Second)
			p := mustAcquire(t, s, 3)
			if got := s.Stats().Capacity; got != 3 {
				t.Errorf("capacity %d", got)
			}
			p.Release()
		})
	}
}

func TestSemaphore_NoWaiters(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			a, _ := newClient(t, store)
			b, _ := newClient(t, store)
			s := semaphore(t, a, of(2, mode, sema.MaxWaiters(0)))
			p := mustAcquire(t, s, 2)
			_, err := s.Acquire(t.Context(), 1)
			wantErr(t, err, sema.ErrQueueFull)
			_, err = semaphore(t, b, of(2, mode)).Acquire(t.Context(), 1)
			wantErr(t, err, sema.ErrQueueFull)
			p.Release()
			time.Sleep(time.Minute)
			mustAcquire(t, s, 1).Release()
		})
	}
}

func TestSemaphore_CapacityZeroIsPaused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, memstore.New())
		s := semaphore(t, c, of(0))
		_, err := s.TryAcquire(t.Context(), 1)
		wantErr(t, err, sema.ErrFull)
		granted := make(chan sema.Permit, 1)
		go func() { granted <- mustAcquire(t, s, 1) }()
		time.Sleep(time.Hour)
		if len(granted) > 0 {
			t.Error("granted although the capacity is 0")
		}
		wantErr(t, c.Configure(t.Context(), "db", func(c *fleet.Config) { c.Capacity = 1 }), nil)
		(<-granted).Release()
	})
}

func TestLabels_RoundTrip(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, memstore.New())
		labels := map[string]string{"a": "x=y", "b": "quoted \"it\"", "c": "tab\t", "d": "ü", "e": "plain", "f": ""}
		s := semaphore(t, c, of(1, fleet.Labels(labels)))
		asked := maps.Clone(labels)
		labels["e"] = "changed later"
		p := mustAcquire(t, s, 1)
		snapshot, err := c.Info(t.Context(), "db")
		wantErr(t, err, nil)
		if got := snapshot.Holders[0].Labels; !maps.Equal(got, asked) {
			t.Errorf("labels %v, want %v", got, asked)
		}
		_, err = c.Semaphore("db", 1, fleet.Labels(asked))
		wantErr(t, err, nil)
		_, err = c.Semaphore("db", 1, fleet.Labels(labels))
		wantErr(t, err, sema.ErrInvalid)
		p.Release()
	})
}

func TestOption_InvalidValuesAreRejected(t *testing.T) {
	t.Parallel()
	c := fleet.New(memstore.New())
	for _, opts := range [][]fleet.Option{
		{fleet.ModePooled + 1}, {fleet.ModePooled, fleet.Rate(time.Second)}, {fleet.Block(-1)}, {fleet.Quantum(-1)},
		{fleet.FailOpen(-1)}, {fleet.FailOpen(1), fleet.RecoverAfter(-1)},
		{fleet.FailOpen(1), fleet.FailOpenAfter(-1)}, {fleet.FailOpen(1), fleet.FailOpenAfter(time.Second - 1)},
		{fleet.FailOpenAfter(time.Second)}, {fleet.RecoverAfter(time.Second)}, {fleet.Block(2)}, {fleet.Quantum(time.Second)}, // without effect
		{fleet.Labels(map[string]string{"": "a"})}, {fleet.Labels(map[string]string{"a b": "a"})}, {fleet.Labels(map[string]string{"a=b": "a"})},
		{fleet.Labels(map[string]string{"a\"": "a"})}, {fleet.Labels(map[string]string{"a\n": "a"})},
	} {
		_, err := c.Semaphore("a", 1, opts...)
		wantErr(t, err, sema.ErrInvalid)
	}
	_, err := c.Semaphore("a\x7f", 1)
	wantErr(t, err, sema.ErrInvalid)
	_, err = c.Semaphore(strings.Repeat("~", 200), 1)
	wantErr(t, err, nil)
	for range 2 { // functions cannot be compared
		_, err = c.Semaphore("b", 1, sema.Observe(sema.ObserverFunc(func(sema.Event) {})))
		wantErr(t, err, nil)
	}
	_, err = fleet.Open(t.Context(), "redis://user:secret@%zz")
	if wantErr(t, err, sema.ErrInvalid); strings.Contains(err.Error(), "secret") {
		t.Errorf("%v contains the password", err)
	}
	wantErr(t, c.Close(t.Context()), nil)
	_, err = c.Semaphore("c", 1)
	wantErr(t, err, sema.ErrClosed)
}

func TestClient_RejectsInvalidOptionsAndNames(t *testing.T) {
	t.Parallel()
	c := fleet.New(memstore.New())
	defer c.Close(context.Background())
	for _, o := range []spec{
		of(-2), of(1, fleet.TTL(time.Millisecond)), of(1, fleet.TTL(0)), of(1, fleet.Ramp(-1)), of(1, fleet.Rate(-1)),
		of(1, fleet.TryTimeout(0)), of(1, fleet.UnavailableAfter(-1)), of(1, nil),
	} {
		_, err := c.Semaphore("a", o.capacity, o.opts...)
		wantErr(t, err, sema.ErrInvalid)
	}
	if _, err := c.Semaphore("a", 1, fleet.TTL(time.Millisecond)); !strings.Contains(err.Error(), "TTL of 1ms: want 100ms to ") {
		t.Error(err)
	}
	if err := c.Resize(context.Background(), "a", -1); !strings.Contains(err.Error(), "capacity -1: want 0 to ") {
		t.Error(err)
	}
	for _, name := range []string{"", "a b", "ä", "{a}", string(make([]byte, 201))} {
		_, err := c.Semaphore(name, 1)
		wantErr(t, err, sema.ErrInvalid)
	}
	semaphore(t, c, of(1))
	_, err := c.Semaphore("db", 2)
	wantErr(t, err, sema.ErrInvalid)
}
