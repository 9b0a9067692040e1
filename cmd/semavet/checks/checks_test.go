package checks

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/group"
	"github.com/sema-go/sema/pool"
	"github.com/sema-go/sema/rate"
)

// A run is an analyzer with a value of its flag where, and the packages of
// testdata that it checks.
type run struct {
	analyzer *analysis.Analyzer
	where    string // "": the default
	packages []string
}

var runs = []run{
	{Dropped, "", []string{"correct", "mistaken", "discarded", "paths", "loops", "items", "admissions", "tickets", "contexts", "ignored", "rates", "spent", "handover", "handover/lib", "clean", "clean/main"}},
	{Ignored, "", []string{"correct", "mistaken", "results", "errors", "quiet", "xsync"}},
	{Undeferred, "", []string{"correct", "mistaken", "recovered", "quiet", "xsync"}},
	{Undeferred, "calls", []string{"calls", "quiet", "xsync"}},
	{Undeferred, "all", []string{"undeferred"}},
	{Weighted, "", []string{"correct", "mistaken", "weights", "lost", "passed", "growing", "quiet", "xsync"}},
	{Background, "", []string{"quiet", "xsync"}},
	{Background, "requests", []string{"mistaken", "requests", "quiet", "xsync"}},
	{Background, "all", []string{"background"}},
}

// TestAnalyzers_ReportTheFindingsInTestdata compares the reports with the
// comments in testdata.
func TestAnalyzers_ReportTheFindingsInTestdata(t *testing.T) {
	results := analysistest.Run(t, moduleRoot(t), together(runs), patterns(runs)...)
	if want := len(patterns(runs)); len(results) != want {
		t.Errorf("%d packages were checked, want %d", len(results), want)
	}
}

// TestAnalyzers_SuggestFixes compares the fixes with the golden files.
func TestAnalyzers_SuggestFixes(t *testing.T) {
	runs := []run{
		{Dropped, "", []string{"fixes"}},
		{Ignored, "", []string{"errorfixes"}},
		{Undeferred, "", []string{"deferfixes"}},
		{Background, "requests", []string{"contextfixes"}},
	}
	analysistest.RunWithSuggestedFixes(t, moduleRoot(t), together(runs), patterns(runs)...)
}

// together returns an analyzer that does all runs. So the standard library,
// which takes most of the time, is loaded and analyzed once.
func together(runs []run) *analysis.Analyzer {
	var flags sync.Mutex // packages are checked in parallel
	return &analysis.Analyzer{
		Name: "together", Doc: "do all runs", Requires: requirements, FactTypes: Dropped.FactTypes,
		Run: func(pass *analysis.Pass) (any, error) {
			flags.Lock()
			defer flags.Unlock()
			kept, err := runDropped(silently(pass)) // for its facts, and for Undeferred
			for _, r := range runs {
				if !slices.ContainsFunc(r.packages, func(name string) bool { return strings.HasSuffix(pass.Pkg.Path(), "/testdata/"+name) }) {
					continue
				}
				of := *pass
				of.ResultOf = maps.Clone(pass.ResultOf)
				of.ResultOf[Dropped] = kept
				err = errors.Join(err, r.with(func() error { _, err := r.analyzer.Run(&of); return err }))
			}
			return nil, err
		},
	}
}

func silently(pass *analysis.Pass) *analysis.Pass {
	of := *pass
	of.Report = func(analysis.Diagnostic) {}
	return &of
}

// with calls f while the flag has the run's value.
func (r run) with(f func() error) error {
	if r.where == "" {
		return f()
	}
	value := r.analyzer.Flags.Lookup("where").Value
	defer value.Set(value.String())
	return errors.Join(value.Set(r.where), f())
}

// patterns returns the packages of all runs, each once.
func patterns(runs []run) (list []string) {
	for _, r := range runs {
		for _, name := range r.packages {
			list = append(list, "./checks/testdata/"+name)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func TestAnalyzers_SkipTestFilesByDefault(t *testing.T) {
	var missed failures
	analysistest.Run(&missed, moduleRoot(t), Dropped, "./checks/testdata/intests")
	if len(missed) != 3 {
		t.Errorf("without the flag, want 3 missing reports, got %q", missed)
	}
	flags := flag.NewFlagSet("semavet", flag.ContinueOnError)
	AddFlags(flags)
	if err := flags.Parse([]string{"-include-tests"}); err != nil {
		t.Fatal(err)
	}
	defer flags.Set("include-tests", "false")
	analysistest.Run(t, moduleRoot(t), Dropped, "./checks/testdata/intests")
}

func TestAnalyzers_RejectUnknownPlaces(t *testing.T) {
	for _, of := range []*analysis.Analyzer{Undeferred, Background} {
		if err := of.Flags.Set("where", "nowhere"); err == nil {
			t.Errorf("%s accepts -where=nowhere", of.Name)
		}
	}
}

func TestAnalyzers_AreValid(t *testing.T) {
	if err := analysis.Validate(Analyzers); err != nil {
		t.Error(err)
	}
}

// failures are the errors that analysistest reports.
type failures []string

func (c *failures) Errorf(format string, args ...any) {
	*c = append(*c, fmt.Sprintf(format, args...))
}

// TestKind_KnowsAllMethods fails if Permit or Ticket gets a method that is not
// classified as keeping the permit or not.
func TestKind_KnowsAllMethods(t *testing.T) {
	t.Parallel()
	for _, of := range []struct {
		typ       reflect.Type
		kind      *kind
		transfers []string
	}{
		{reflect.TypeFor[sema.Permit](), permit, []string{"Split", "Lease", "Backing"}},
		{reflect.TypeFor[pool.Item[int]](), item, []string{"Keep"}},
		{reflect.TypeFor[admit.Admission](), admission, nil},
		{reflect.TypeFor[*sema.Ticket](), ticket, []string{"Permit"}},
	} {
		var methods []string
		for m := range of.typ.Methods() {
			methods = append(methods, m.Name)
		}
		known := slices.Concat(of.kind.neutral, of.kind.releases, of.transfers)
		slices.Sort(known)
		if !slices.Equal(methods, known) {
			t.Errorf("%v has methods %v, want %v", of.typ, methods, known)
		}
		for _, name := range slices.Concat(of.kind.uses, of.kind.proof) {
			if !slices.Contains(known, name) {
				t.Errorf("%v has no method %s", of.typ, name)
			}
		}
	}
}

// TestNames_MatchTheRealPackages compares the names that the analyzer looks up
// with the real packages.
func TestNames_MatchTheRealPackages(t *testing.T) {
	t.Parallel()
	if path := reflect.TypeFor[sema.Permit]().PkgPath(); path != semaPath {
		t.Errorf("Permit is in package %s", path)
	}
	if path := reflect.TypeFor[fleet.Semaphore]().PkgPath(); path != fleetPath {
		t.Errorf("the fleet's Semaphore is in package %s", path)
	}
	if path := reflect.TypeFor[rate.Gate]().PkgPath(); path != ratePath {
		t.Errorf("the Gate of rates is in package %s", path)
	}
	if path := reflect.TypeFor[admit.Admission]().PkgPath(); path != admitPath {
		t.Errorf("Admission is in package %s", path)
	}
	if path := reflect.TypeFor[pool.Item[int]]().PkgPath(); path != poolPath {
		t.Errorf("Item is in package %s", path)
	}
	if path := reflect.TypeFor[group.Group]().PkgPath(); path != groupPath {
		t.Errorf("Group is in package %s", path)
	}
	_ = fleet.LeaseOf
	_ = fleet.Rate
	_ = []func() bool{(*sema.Spin)(nil).TryAcquire}
	_ = []func(int64) bool{(*sema.Weighted)(nil).TryAcquire}
	_ = []func(int64) *sema.Weighted{sema.NewWeighted}
	_ = []func(context.Context, int64) error{(*sema.Weighted)(nil).Acquire, (*sema.Counter)(nil).Wait}
	_ = []func(context.Context, int64, int64) (int64, error){(*sema.Counter)(nil).WaitUpTo}
	_ = sema.Do
	_ = (*pool.Pool[int]).Do
	_ = (*group.Group).GoWithin
}

// moduleRoot returns the directory from which the packages under testdata are
// loaded, so that they use the real sema.
func moduleRoot(t *testing.T) string {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}
