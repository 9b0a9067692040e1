package dropped

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
)

// TestFindings compares with the comments in testdata what is found there. All is
// loaded at once: most of the time goes to the standard library.
func TestFindings(t *testing.T) {
	t.Parallel()
	var patterns []string
	for _, name := range []string{"thrown", "paths", "loops", "tickets", "contexts", "answers", "ignored", "rates", "handover", "handover/lib", "silent", "silent/main"} {
		patterns = append(patterns, "./dropped/testdata/"+name)
	}
	results := analysistest.Run(t, moduleRoot(t), Analyzer, patterns...)
	if len(results) != len(patterns) {
		t.Errorf("%d packages were looked at, want %d", len(results), len(patterns))
	}
}

func TestFixes(t *testing.T) {
	t.Parallel()
	analysistest.RunWithSuggestedFixes(t, moduleRoot(t), Analyzer, "./dropped/testdata/fixes")
}

// TestFilesOfTests is not parallel: the flag is for all.
func TestFilesOfTests(t *testing.T) {
	var unlooked complaints
	analysistest.Run(&unlooked, moduleRoot(t), Analyzer, "./dropped/testdata/intests")
	if len(unlooked) != 3 {
		t.Errorf("without the flag nothing is to be found: %q", unlooked)
	}
	if err := Analyzer.Flags.Set("include-tests", "true"); err != nil {
		t.Fatal(err)
	}
	defer Analyzer.Flags.Set("include-tests", "false")
	analysistest.Run(t, moduleRoot(t), Analyzer, "./dropped/testdata/intests")
}

// complaints are what analysistest misses.
type complaints []string

func (c *complaints) Errorf(format string, args ...any) {
	*c = append(*c, fmt.Sprintf(format, args...))
}

// TestMethodsAreKnown fails when Permit or Ticket gets a method of which nobody
// has said whether it leaves the permit where it is.
func TestMethodsAreKnown(t *testing.T) {
	t.Parallel()
	for _, of := range []struct {
		typ  reflect.Type
		kind *kind
		care []string
	}{
		{reflect.TypeFor[sema.Permit](), permit, []string{"Release", "Split", "Lease", "Backing"}},
		{reflect.TypeFor[*sema.Ticket](), ticket, []string{"Cancel", "Permit"}},
	} {
		var methods []string
		for m := range of.typ.Methods() {
			methods = append(methods, m.Name)
		}
		known := slices.Concat(of.kind.neutral, of.care)
		slices.Sort(known)
		if !slices.Equal(methods, known) {
			t.Errorf("%v has %v, known are %v", of.typ, methods, known)
		}
	}
}

// TestNamesAreReal compares with the real packages what is looked up by name.
func TestNamesAreReal(t *testing.T) {
	t.Parallel()
	if path := reflect.TypeFor[sema.Permit]().PkgPath(); path != semaPath {
		t.Errorf("Permit is of %s", path)
	}
	if path := reflect.TypeFor[fleet.Semaphore]().PkgPath(); path != fleetPath {
		t.Errorf("the fleet's Semaphore is of %s", path)
	}
	_ = fleet.LeaseOf
	_ = fleet.Rate
	_ = []func() bool{(*sema.Spin)(nil).TryAcquire}
	_ = []func(int64) bool{(*sema.Weighted)(nil).TryAcquire}
}

// moduleRoot is where the packages under testdata are loaded from, so that they
// use the real sema.
func moduleRoot(t *testing.T) string {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}
