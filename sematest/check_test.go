package sematest_test

import (
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/sematest"
)

func TestCheck_OfRootGates(t *testing.T) {
	t.Parallel()
	all := sematest.Traits{FIFO: true, Weights: true, Split: true}
	for name, gate := range map[string]struct {
		traits sematest.Traits
		create func(*testing.T, int64) sema.Gate
	}{
		"Semaphore": {all, func(_ *testing.T, n int64) sema.Gate { return sema.New(n) }},
		"observed": {all, func(_ *testing.T, n int64) sema.Gate {
			return sema.New(n, sema.Diagnose(sema.DiagnoseFull), sema.Observe(sema.ObserverFunc(func(sema.Event) {})))
		}},
		"Binary":  {sematest.Traits{FIFO: true, Binary: true}, func(*testing.T, int64) sema.Gate { return sema.New(1) }},
		"Unfair":  {sematest.Traits{Weights: true, Split: true}, func(_ *testing.T, n int64) sema.Gate { return sema.New(n, sema.Unfair) }},
		"LIFO":    {sematest.Traits{Weights: true, Split: true}, func(_ *testing.T, n int64) sema.Gate { return sema.New(n, sema.LIFO) }},
		"Striped": {sematest.Traits{}, func(_ *testing.T, n int64) sema.Gate { return sema.NewStriped(n) }},
		"Faulty":  {all, func(_ *testing.T, n int64) sema.Gate { return sematest.Wrap(sema.New(n), 1) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sematest.Check(t, gate.traits, gate.create)
		})
	}
}
