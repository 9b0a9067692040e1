package pool_test

import (
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/pool"
)

func TestItem_CopiesAreOneItem(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{}
		p := newPool(t, s, pool.Config[*conn]{Size: 2})
		item := mustGet(t, p)
		stale := item
		if !item.Held() || item.Value().id != 1 || !item.Permit().Held() {
			t.Errorf("held %v, value %v", item.Held(), item.Value())
		}
		item.Release()
		stale.Release()
		stale.Discard()
		wantState(t, p, 1, 1, 0)
		again := mustGet(t, p) // in the same slot
		stale.Release()
		stale.Discard()
		if v, permit := stale.Keep(); v != nil || permit.Held() || permit.Weight() != 0 {
			t.Errorf("a stale copy keeps %v with %v", v, permit)
		}
		if stale.Held() || stale.Value() != nil || stale.Permit().Held() || !again.Held() || again.Value() == nil {
			t.Error("a stale copy is not inert")
		}
		wantState(t, p, 1, 0, 1)
		again.Discard()
		next := mustGet(t, p) // in the same slot, with another conn
		again.Release()
		if !next.Held() || next.Value().id != 2 {
			t.Error("a stale copy ends the lending of another conn")
		}
		next.Release()
		var zero pool.Item[*conn]
		zero.Release()
		zero.Discard()
		if v, permit := zero.Keep(); zero.Held() || zero.Value() != nil || v != nil || permit.Held() {
			t.Error("the zero Item is not inert")
		}
	})
}

func TestItem_DiscardClosesAndReplaces(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, &server{}, pool.Config[*conn]{Size: 1})
		item := mustGet(t, p)
		broken := item.Value()
		waiter := getting(t.Context(), p)
		item.Discard()
		next := wantItem(t, waiter)
		if !broken.closed || next.Value() == broken || next.Value().id != 2 {
			t.Errorf("broken conn closed %v, then conn %d", broken.closed, next.Value().id)
		}
		next.Release()
		if st := p.Stats(); st.Discards != 1 || st.Closes != 1 || st.Opens != 2 {
			t.Errorf("%+v", st.Totals)
		}
	})
}

func TestItem_KeepCountsUntilItsPermitIsReleased(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{}
		p := newPool(t, s, pool.Config[*conn]{Size: 1, Options: []sema.Option{sema.Name("db")}})
		item := mustGet(t, p)
		v, permit := item.Keep()
		if v == nil || v.id != 1 || !permit.Held() || permit.Weight() != 1 || item.Held() || !strings.Contains(permit.String(), "db") {
			t.Fatalf("kept %v with %v", v, permit)
		}
		item.Release()
		item.Discard()
		wantState(t, p, 1, 0, 1)
		waiter := getting(t.Context(), p)
		wantPending(t, waiter)
		if permit.Lost() != nil || permit.Err() != nil {
			t.Error("a local permit is lost")
		}
		s.Close(v) // it is the caller's
		permit.Release()
		permit.Release()
		wantItem(t, waiter).Release()
		wantState(t, p, 1, 1, 0)
		if st := p.Stats(); st.Keeps != 1 || st.Kept != 0 || st.Closes != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// TestItem_LeaksAreReported: an item that is dropped is a leaked permit, and a caller does
// not wait for it with ReclaimLeaks.
func TestItem_LeaksAreReported(t *testing.T) {
	t.Parallel()
	leaked := make(chan sema.Event, 2)
	observe := sema.Observe(sema.ObserverFunc(func(e sema.Event) {
		if e.Kind == sema.EventLeaked {
			leaked <- e
		}
	}))
	options := []sema.Option{sema.Name("db"), observe, sema.Diagnose(sema.DiagnoseFull), sema.ReclaimLeaks}
	for name, c := range map[string]pool.Config[*conn]{
		"Size": {Size: 1, Options: options}, "Gate": {Size: 1, Gate: sema.New(1), Options: options},
	} {
		s := &server{t: t}
		c.Open, c.Close = s.Open, s.Close
		p := pool.New(c)
		func() { mustGet(t, p) }() // dropped
		for end := time.Now().Add(time.Minute); len(leaked) == 0; runtime.GC() {
			if time.Now().After(end) {
				t.Fatalf("%s: no leak was reported", name)
			}
		}
		if e := <-leaked; e.Name != "db" {
			t.Errorf("%+v", e)
		}
		if name == "Size" { // the permit of the other gate is lost
			mustGet(t, p).Release()
		}
		p.Close()
	}
}

func TestItem_PermitIsInertAfterRelease(t *testing.T) {
	t.Parallel()
	p := newPool(t, &server{}, pool.Config[*conn]{Size: 2})
	for range 2000 { // copies that are read while another one is released and lent again
		item := mustGet(t, p)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for item.Held() {
					if v := item.Value(); v != nil && v.id > 1 {
						t.Errorf("conn %d, want 1 or none", v.id)
					}
					item.Permit().Weight()
				}
				if item.Permit().Held() || item.Value() != nil {
					t.Error("a stale copy is not inert")
				}
			})
		}
		item.Release()
		mustGet(t, p).Release()
		wg.Wait()
	}
}

func TestItem_KeptPermitIsNotThatOfTheItem(t *testing.T) {
	bubble(t, func(t *testing.T) {
		observed := []sema.Option{sema.Observe(sema.ObserverFunc(func(sema.Event) {}))}
		for _, c := range []pool.Config[*conn]{{Size: 1}, {Size: 1, Options: observed}, {Size: 1, Gate: sema.New(1)}} {
			s := &server{}
			p := newPool(t, s, c)
			item := mustGet(t, p)
			v, permit := item.Keep()
			if item.Permit().Held() {
				t.Error("a stale copy has the permit of an item that was kept")
			}
			item.Permit().Release()
			wantState(t, p, 1, 0, 1)
			s.Close(v)
			permit.Release()
			wantState(t, p, 0, 0, 0)
		}
	})
}
