package fleet_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
)

func TestSemaphore_ResizeDrainResume(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			a, _ := newClient(t, store)
			b, _ := newClient(t, store)
			s, other := semaphore(t, a, of(2, mode)), semaphore(t, b, of(2, mode))
			p := mustAcquire(t, other, 1)
			wantErr(t, s.Resize(t.Context(), 5), nil)
			wantErr(t, s.Resize(t.Context(), -1), sema.ErrInvalid)
			mustAcquire(t, other, 4).Release()
			mustAcquire(t, s, 1).Release()
			if got := s.Stats().Capacity; got != 5 {
				t.Errorf("capacity %d", got)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			wantErr(t, s.Drain(ctx), context.DeadlineExceeded)
			if stats := s.Stats(); !stats.Draining {
				t.Errorf("%+v", stats)
			}
			for _, s := range []*fleet.Semaphore{s, other} {
				_, err := s.Acquire(t.Context(), 1)
				wantErr(t, err, sema.ErrDraining)
			}
			p.Release()
			wantErr(t, s.Drain(t.Context()), nil)
			wantErr(t, s.Resume(t.Context()), nil)
			mustAcquire(t, other, 1).Release()
		})
	}
}

func TestSemaphore_Close(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			c, _ := newClient(t, store)
			var d eventLog
			s := semaphore(t, c, of(2, mode, sema.Observe(&d)))
			p := mustAcquire(t, s, 2)
			waiting := make(chan error, 1)
			go func() {
				_, err := s.Acquire(t.Context(), 1)
				waiting <- err
			}()
			synctest.Wait()
			time.AfterFunc(time.Minute, p.Release)
			start := time.Now()
			wantErr(t, s.Close(t.Context()), nil)
			if took := time.Since(start); took < time.Minute {
				t.Errorf("mode %d: Close returned after %v, before the release", mode, took)
			}
			wantErr(t, <-waiting, sema.ErrClosed)
			_, err := s.TryAcquire(t.Context(), 1)
			wantErr(t, err, sema.ErrClosed)
			wantErr(t, s.Close(t.Context()), sema.ErrClosed)
			if used, sessions := inUse(t, store); used != 0 || sessions != 0 {
				t.Errorf("mode %d: %d in use, %d sessions", mode, used, sessions)
			}
			synctest.Wait()
			if n := d.count(sema.EventClosed); n != 1 {
				t.Errorf("mode %d: reported %d times", mode, n)
			}
			again := semaphore(t, c, of(3, mode)) // a new semaphore
			mustAcquire(t, again, 2).Release()
			if !s.Stats().Closed || again.Stats().Closed {
				t.Error("Stats().Closed is wrong")
			}
		})
	}
}

func TestClient_CloseIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d eventLog
		c, _ := newClient(t, memstore.New())
		s := semaphore(t, c, of(1, sema.Observe(&d), sema.Observe(sema.ObserverFunc(func(e sema.Event) {
			if e.Kind == sema.EventClosed {
				c.Close(t.Context()) // observers may close the client
				panic("observer")
			}
		}))))
		mustAcquire(t, s, 1).Release()
		wantErr(t, c.Close(t.Context()), nil)
		synctest.Wait()
		if n := d.count(sema.EventClosed); n != 1 {
			t.Errorf("reported %d times", n)
		}
	})
}

// TestSemaphore_CloseModes checks that a permit which is still held when Close returns is lost,
// and is free at the store after its TTL.
func TestSemaphore_CloseModes(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		modes []fleet.CloseMode
		want  error
		used  int64 // right after Close
	}{
		"wait":    {nil, context.DeadlineExceeded, 1},
		"release": {[]fleet.CloseMode{fleet.CloseRelease}, nil, 0},
		"abandon": {[]fleet.CloseMode{fleet.CloseAbandon}, nil, 1},
		"invalid": {[]fleet.CloseMode{fleet.CloseAbandon + 1}, sema.ErrInvalid, 1},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				client, _ := newClient(t, store)
				s := semaphore(t, client, of(2, fleet.TTL(15*time.Second)))
				p := mustAcquire(t, s, 1)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				wantErr(t, s.Close(ctx, c.modes...), c.want)
				if used, _ := inUse(t, store); used != c.used {
					t.Errorf("%d in use, want %d", used, c.used)
				}
				if c.want == sema.ErrInvalid {
					wantErr(t, p.Err(), nil)
					return
				}
				wantErr(t, p.Err(), sema.ErrLost)
				time.Sleep(time.Minute)
				if used, _ := inUse(t, store); used != 0 {
					t.Errorf("%d in use after the TTL", used)
				}
			})
		})
	}
}

// TestContext_NilIsInvalid calls all functions that take a context, with a nil context.
func TestContext_NilIsInvalid(t *testing.T) {
	t.Parallel()
	c := fleet.New(memstore.New())
	defer c.Close(t.Context())
	s, err := c.Semaphore("db", 1)
	wantErr(t, err, nil)
	pooled, err := c.Semaphore("pooled", 1, fleet.ModePooled)
	wantErr(t, err, nil)
	region := fleet.NewRegion(memstore.New(), c, 0)
	defer region.Close()
	p := mustAcquire(t, s, 1)
	checked := 0
	for _, of := range []any{c, s, pooled, region} {
		v := reflect.ValueOf(of)
		for i := range v.NumMethod() {
			method, typ := v.Method(i), v.Method(i).Type()
			if typ.NumIn() == 0 || typ.In(0) != reflect.TypeFor[context.Context]() || typ.NumOut() == 0 || typ.Out(typ.NumOut()-1) != reflect.TypeFor[error]() {
				continue
			}
			in := []reflect.Value{reflect.Zero(typ.In(0))}
			for k := 1; k < typ.NumIn(); k++ {
				if !typ.IsVariadic() || k < typ.NumIn()-1 {
					in = append(in, reflect.Zero(typ.In(k)))
				}
			}
			out := method.Call(in)
			if err, _ := out[len(out)-1].Interface().(error); !errors.Is(err, sema.ErrInvalid) || !strings.Contains(err.Error(), "nil context") {
				t.Errorf("%T.%s: %v", of, v.Type().Method(i).Name, err)
			}
			checked++
		}
	}
	if checked < 25 {
		t.Errorf("%d methods were checked", checked)
	}
	var none context.Context
	for _, err := range c.Watch(none, "db", time.Second) {
		wantErr(t, err, sema.ErrInvalid)
	}
	_, err = fleet.Open(none, "mem:")
	wantErr(t, err, sema.ErrInvalid)
	_, err = fleet.OpenStore(none, "mem:")
	wantErr(t, err, sema.ErrInvalid)
	wantErr(t, fleet.Release(none, p), sema.ErrInvalid)
	if !p.Held() {
		t.Error("the permit was released")
	}
	p.Release()
}

func TestStats_Counts(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			c, _ := newClient(t, memstore.New())
			s := semaphore(t, c, of(2, mode, sema.MaxWait(10*time.Second)))
			p := mustAcquire(t, s, 2)
			_, err := s.TryAcquire(t.Context(), 1) // rejected
			wantErr(t, err, sema.ErrFull)
			_, err = s.Acquire(t.Context(), 3) // rejected
			wantErr(t, err, sema.ErrTooLarge)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			var wg sync.WaitGroup
			wg.Go(func() { s.Acquire(ctx, 1) })         // cancelled after 5 s
			wg.Go(func() { s.Acquire(t.Context(), 1) }) // timed out after 10 s
			time.Sleep(time.Second)
			if got := s.Stats(); got.Waiters != 2 || got.WaitTime != 2*time.Second {
				t.Errorf("mode %d: %d waiters, %v", mode, got.Waiters, got.WaitTime)
			}
			wg.Wait()
			time.AfterFunc(3*time.Second, p.Release)
			mustAcquire(t, s, 1).Release() // after 3 s
			for range 3 {
				mustAcquire(t, s, 1).Release()
			}
			_, err = s.Acquire(ctx, 1) // ctx has ended before
			wantErr(t, err, context.DeadlineExceeded)
			_, err = s.Acquire(t.Context(), -1)
			wantErr(t, err, sema.ErrInvalid)
			got := s.Stats().Counts
			want := sema.Counts{Acquired: 5, Waited: 3, TimedOut: 1, Cancelled: 1, Rejected: 2, WaitTime: 18 * time.Second}
			if mode == fleet.ModePooled { // the first acquire waits for a block, for zero time
				want.Waited++
			}
			if got != want {
				t.Errorf("mode %d: %+v, want %+v", mode, got, want)
			}
		})
	}
}

// TestAPI_UsesNoProtocolTypes checks that only authors of stores need protocol types.
func TestAPI_UsesNoProtocolTypes(t *testing.T) {
	t.Parallel()
	allowed := []reflect.Type{reflect.TypeFor[fleet.Fence](), reflect.TypeFor[fleet.LeaseID]()}
	path := reflect.TypeFor[protocol.State]().PkgPath()
	seen := map[reflect.Type]bool{}
	var check func(where string, typ reflect.Type)
	check = func(where string, typ reflect.Type) {
		if seen[typ] || slices.Contains(allowed, typ) || typ == reflect.TypeFor[fleet.Store]() || typ == reflect.TypeFor[*fleet.Region]() {
			return
		}
		seen[typ] = true
		if typ.PkgPath() == path {
			t.Errorf("%s has %v", where, typ)
		}
		for i := range typ.NumMethod() {
			check(where+"."+typ.Method(i).Name, typ.Method(i).Type)
		}
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Chan:
			check(where, typ.Elem())
		case reflect.Func:
			for i := range typ.NumIn() {
				check(where, typ.In(i))
			}
			for i := range typ.NumOut() {
				check(where, typ.Out(i))
			}
		case reflect.Struct:
			for i := range typ.NumField() {
				if f := typ.Field(i); f.IsExported() {
					check(where+"."+f.Name, f.Type)
				}
			}
		}
	}
	for _, of := range []any{(*fleet.Client)(nil), (*fleet.Semaphore)(nil), (*fleet.Guard)(nil), fleet.Info{}, fleet.Stats{}, fleet.Lease{}, fleet.Finding{}, fleet.ShareInfo{}, fleet.Revocation{}} {
		typ := reflect.TypeOf(of)
		check(typ.String(), typ)
	}
}
