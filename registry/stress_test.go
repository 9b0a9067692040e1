package registry_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/registry"
)

// TestRegistry_EverythingAtOnce runs all methods in parallel, for the race detector. At the
// end the last file that was accepted is in force.
func TestRegistry_EverythingAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := registry.New(registry.Log(new(journal).logger()), registry.PollEvery(time.Millisecond))
	r.Expect("late/*")
	var observed sync.Map // observers may use the registry
	db := r.Semaphore("db", 10, "why", sema.Observe(sema.ObserverFunc(func(sema.Event) {
		l, _ := r.Get("db")
		observed.Store("value", l.Value)
	})))
	r.Add("mail", rate.New(1, time.Second), "why")
	watched := filepath.Join(dir, "watched.json")
	write(t, watched, `{"limits": {}}`)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { r.Watch(ctx, watched) })
	var work sync.WaitGroup
	const rounds = 100
	for worker := range 4 {
		path := filepath.Join(dir, fmt.Sprintf("%d.json", worker))
		work.Go(func() {
			for i := range rounds {
				name := fmt.Sprintf("late/%d/%d", worker, i)
				write(t, path, fmt.Sprintf(`{"limits": {"db": {"capacity": %d}, "mail": {"capacity": 3, "window": "1s"}, "late/%d/%d": {"capacity": 7}}}`, i+1, worker, i+1))
				if err := r.Load(path); err != nil {
					t.Error(err)
				}
				write(t, watched, fmt.Sprintf(`{"limits": {"db": {"capacity": %d}}}`, 1000+i))
				s := r.Semaphore(name, 1, "why")
				if permit, err := s.TryAcquire(ctx, 1); err == nil {
					permit.Release()
				}
				get(r, "GET", "/")
				get(r, "GET", "/?format=json")
				if !r.Remove(name) {
					t.Errorf("%q was not registered", name)
				}
			}
		})
	}
	work.Wait()
	cancel()
	all.Wait()
	mustLoad(t, r, `{"limits": {"db": {"capacity": 77}}}`)
	wantCapacity(t, db, 77)
	if err := r.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestRegistry_RegistrationRacesALoad checks that a limit never keeps the setting of an
// older file.
func TestRegistry_RegistrationRacesALoad(t *testing.T) {
	t.Parallel()
	old, latest := file(t, `{"limits": {"late": {"capacity": 1}}}`), file(t, `{"limits": {"late": {"capacity": 2}}}`)
	for range 300 {
		r := registry.New()
		r.Expect("late")
		if err := r.Load(old); err != nil {
			t.Fatal(err)
		}
		own := sema.New(9)
		var both sync.WaitGroup
		both.Go(func() { r.Add("late", own, "why") })
		both.Go(func() {
			if err := r.Load(latest); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
		if got := own.Stats().Capacity; got != 2 {
			t.Fatalf("capacity %d, want that of the last file", got)
		}
	}
}
