package sematest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/sematest"
)

// A recordingTB is a test that notes failures instead of failing.
type recordingTB struct {
	testing.TB
	cleanups []func()
	errors   []string
}

func (r *recordingTB) Helper()                   {}
func (r *recordingTB) Cleanup(f func())          { r.cleanups = append(r.cleanups, f) }
func (r *recordingTB) Errorf(f string, a ...any) { r.errors = append(r.errors, fmt.Sprintf(f, a...)) }
func (r *recordingTB) Fatalf(f string, a ...any) { r.Errorf(f, a...) }

func (r *recordingTB) end() {
	for _, f := range r.cleanups {
		f()
	}
}

func TestNoneHeld_ReportsHeldPermits(t *testing.T) {
	t.Parallel()
	db := sema.New(4, sema.Name("db of TestNoneHeld"), sema.Diagnose(sema.DiagnoseFull))
	r := &recordingTB{TB: t}
	sematest.NoneHeld(r, db, sema.New(1))
	p, err := db.Acquire(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	r.end()
	if len(r.errors) != 1 || !strings.Contains(r.errors[0], "3 permits held") || !strings.Contains(r.errors[0], "held_test.go") {
		t.Errorf("%q, want one error with the site", r.errors)
	}
}

func TestNoneHeld_PassesWhenAllAreReleased(t *testing.T) {
	t.Parallel()
	s := sema.New(1)
	r := &recordingTB{TB: t}
	sematest.NoneHeld(r, s)
	p, err := s.Acquire(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	p.Release()
	r.end()
	if len(r.errors) > 0 {
		t.Errorf("%q", r.errors)
	}
}

func TestNoneHeld_NeedsStats(t *testing.T) {
	t.Parallel()
	r := &recordingTB{TB: t}
	defer func() { _ = recover() }()
	sematest.NoneHeld(r, &brokenGate{gate: sema.New(1)})
	if len(r.errors) != 1 || !strings.Contains(r.errors[0], "no method Stats") {
		t.Errorf("%q, want that the gate has no Stats", r.errors)
	}
}

func TestNoneHeld_AdvisesWithoutDiagnostics(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]sema.Option{nil, {sema.Name("db of TestNoneHeld_Advises")}} {
		s := sema.New(1, opts...)
		r := &recordingTB{TB: t}
		sematest.NoneHeld(r, s)
		p, err := s.Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		r.end()
		p.Release()
		if len(r.errors) != 1 || !strings.Contains(r.errors[0], "DiagnoseFull") {
			t.Errorf("%q, want advice", r.errors)
		}
	}
}
