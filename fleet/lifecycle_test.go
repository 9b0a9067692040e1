package fleet_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
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
