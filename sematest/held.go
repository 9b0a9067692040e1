package sematest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sema-go/sema"
)

// NoneHeld fails the test if permits of the gates are held, or callers wait for them, when
// the test ends. The gates need a method Stats that returns [sema.Stats], as those of
// package sema have. With a name and [sema.DiagnoseFull] the report shows where the
// permits were acquired. Permits of a rate are not held, and return by time: leave rates out.
func NoneHeld(t testing.TB, gates ...sema.Gate) {
	t.Helper()
	for _, g := range gates {
		if _, ok := g.(statistics); !ok {
			t.Fatalf("sematest: NoneHeld: %T has no method Stats() sema.Stats", g)
		}
	}
	t.Cleanup(func() {
		for _, g := range gates {
			if st := g.(statistics).Stats(); st.InUse > 0 || st.Waiters > 0 {
				t.Errorf("sematest: %s: %d permits held and %d callers waiting at the end of the test%s", describe(g), st.InUse, st.Waiters, sitesOf(g, st.InUse))
			}
		}
	})
}

// statistics is what a gate with Stats has.
type statistics interface{ Stats() sema.Stats }

// describe returns the name of a gate, or its type.
func describe(g sema.Gate) string {
	if name := nameOf(g); name != "" {
		return fmt.Sprintf("%q", name)
	}
	return fmt.Sprintf("%T", g)
}

func nameOf(g any) string {
	if named, ok := g.(interface{ Name() string }); ok {
		return named.Name()
	}
	return ""
}

// sitesOf returns where the held permits of a gate were acquired, as far as the diagnostics
// have recorded it, or how to have them recorded. They know a gate by its name, which others
// may have, too.
func sitesOf(g sema.Gate, held int64) string {
	if held == 0 {
		return ""
	}
	var b strings.Builder
	if name := nameOf(g); name != "" {
		for _, h := range sema.Holders() {
			if h.Name == name {
				fmt.Fprintf(&b, "\n    under this name, %d acquired at %s", h.Weight, h.Site)
			}
		}
	}
	if b.Len() == 0 {
		return "\n    hint: a name of its own and sema.Diagnose(sema.DiagnoseFull) show where they were acquired"
	}
	return b.String()
}
