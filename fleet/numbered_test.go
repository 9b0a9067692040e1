package fleet_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
)

// wantSlots checks the numbers of a permit.
func wantSlots(t *testing.T, p sema.Permit, want ...int64) {
	t.Helper()
	if got := p.Slots(); !slices.Equal(got, want) || (got == nil) != (want == nil) {
		t.Errorf("%v has the numbers %v, want %v", p, got, want)
	}
}

// TestNumbered_PermitsHaveTheLowestFreeNumbers checks the numbers of permits of two clients,
// after releases, splits and changes of the capacity.
func TestNumbered_PermitsHaveTheLowestFreeNumbers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		one, _ := newClient(t, store)
		two, _ := newClient(t, store)
		a, b := semaphore(t, one, of(8, fleet.Numbered())), semaphore(t, two, of(8, fleet.Numbered(), sema.Diagnose(sema.DiagnoseFull)))
		p, q := mustAcquire(t, a, 3), mustAcquire(t, b, 2)
		wantSlots(t, p, 0, 1, 2)
		wantSlots(t, q, 3, 4)
		p.Slots()[0] = 7 // a copy
		wantSlots(t, p, 0, 1, 2)

		first, rest, err := p.Split(1)
		wantErr(t, err, nil)
		wantSlots(t, p)
		wantSlots(t, first, 0)
		wantSlots(t, rest, 1, 2)
		observed, more, err := q.Split(1)
		wantErr(t, err, nil)
		wantSlots(t, observed, 3)
		wantSlots(t, more, 4)

		first.Release()
		observed.Release()
		synctest.Wait()
		wantSlots(t, first)
		again := mustAcquire(t, b, 3)
		wantSlots(t, again, 0, 3, 5)

		wantErr(t, a.Resize(t.Context(), 4), nil) // 6 are held
		again.Release()
		synctest.Wait()
		_, err = a.TryAcquire(t.Context(), 2) // 1, 2 and 4 are held
		wantErr(t, err, sema.ErrFull)
		below := mustAcquire(t, a, 1)
		wantSlots(t, below, 0) // below the capacity
		for _, p := range []sema.Permit{rest, more, below} {
			p.Release()
		}
	})
}

// TestNumbered_NoTwoHoldersShareANumber races the acquires of several clients.
func TestNumbered_NoTwoHoldersShareANumber(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	var mu sync.Mutex
	var holders [4]int
	use := func(p sema.Permit, change int) {
		mu.Lock()
		defer mu.Unlock()
		slots := p.Slots()
		if int64(len(slots)) != p.Weight() {
			t.Errorf("numbers %v of a permit of %d", slots, p.Weight())
		}
		for _, n := range slots {
			if holders[n] += change; holders[n] > 1 {
				t.Errorf("number %d has %d holders", n, holders[n])
			}
		}
	}
	var wg sync.WaitGroup
	for range 3 {
		c, _ := newClient(t, store)
		s := semaphore(t, c, of(4, fleet.Numbered()))
		for range 2 {
			wg.Go(func() {
				for i := range 50 {
					p := mustAcquire(t, s, int64(1+i%2))
					use(p, 1)
					use(p, -1)
					p.Release()
				}
			})
		}
	}
	wg.Wait()
}

// TestNumbered_RejectsPermitsWithoutNumbers checks that neither pools nor local limits are
// used with numbered permits, whether this client or the store requires numbers.
func TestNumbered_RejectsPermitsWithoutNumbers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		option fleet.Option
		hint   string
	}{
		"pooled":    {fleet.ModePooled, "ModeExact"},
		"fail-open": {fleet.FailOpen(1), "FailOpen"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				client, _ := newClient(t, store)
				_, err := client.Semaphore("db", 4, fleet.Numbered(), c.option)
				wantErr(t, err, sema.ErrInvalid)
				if hint := sema.Hint(err); !strings.Contains(hint, c.hint) {
					t.Errorf("hint %q of %v", hint, err)
				}
				mustAcquire(t, semaphore(t, client, of(4, fleet.Numbered())), 1).Release()
				for _, capacity := range []int64{4, fleet.Existing} {
					other, _ := newClient(t, store)
					_, err = semaphore(t, other, of(capacity, c.option)).Acquire(t.Context(), 1)
					wantErr(t, err, sema.ErrInvalid)
					if err == nil || !strings.Contains(err.Error(), "numbered permits cannot") {
						t.Errorf("%v", err)
					}
				}
			})
		})
	}
	t.Run("others", func(t *testing.T) {
		t.Parallel()
		c, _ := newClient(t, memstore.New())
		for what, o := range map[string]spec{"a rate": of(4, fleet.Rate(1e9)), "too many": of(1025)} {
			if _, err := c.Semaphore("db", o.capacity, append(o.opts, fleet.Numbered())...); !errors.Is(err, sema.ErrInvalid) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
	t.Run("region", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newTestRegion(t, memstore.New())
			_, err := r.semaphore(t, of(4, fleet.Numbered())).Acquire(t.Context(), 1)
			wantErr(t, err, sema.ErrInvalid)
		})
	})
}

// TestNumbered_StoredConfigurationApplies checks that a semaphore that is stored without
// numbers stays so, that the difference is reported, and that numbers need not be
// requested.
func TestNumbered_StoredConfigurationApplies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stored, asked []fleet.Option
		slots         []int64
		reported      string
	}{
		"numbers are stored":  {[]fleet.Option{fleet.Numbered()}, nil, []int64{0}, ""},
		"none are stored":     {nil, []fleet.Option{fleet.Numbered()}, nil, "no numbers, not numbered"},
		"both have numbers":   {[]fleet.Option{fleet.Numbered()}, []fleet.Option{fleet.Numbered()}, []int64{0}, ""},
		"neither has numbers": {nil, nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				first, _ := newClient(t, store)
				mustAcquire(t, semaphore(t, first, of(4, c.stored...)), 1).Release()
				synctest.Wait()
				var mu sync.Mutex
				var report string
				observer := sema.ObserverFunc(func(e sema.Event) {
					mu.Lock()
					defer mu.Unlock()
					if e.Kind == sema.EventMismatched {
						report = e.Report
					}
				})
				second, _ := newClient(t, store)
				p := mustAcquire(t, semaphore(t, second, of(4, append(c.asked, sema.Observe(observer))...)), 1)
				wantSlots(t, p, c.slots...)
				p.Release()
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				if !strings.Contains(report, c.reported) || (report == "") != (c.reported == "") {
					t.Errorf("reported %q, want %q", report, c.reported)
				}
			})
		})
	}
}
