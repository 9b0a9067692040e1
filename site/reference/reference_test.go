package reference

import (
	"slices"
	"testing"

	"github.com/sema-go/sema/site/pages"
)

// maxBehind is how many names the list in the repository may be behind the source. A release
// writes it anew, and go run ./site reads the source.
const maxBehind = 20

// TestRead_FindsTheSymbolsOfThisRepository also compares the names with those of sema serve.
func TestRead_FindsTheSymbolsOfThisRepository(t *testing.T) {
	t.Parallel()
	got, err := Read("../..")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]pages.Symbol{}
	for _, p := range got {
		for _, s := range p.Symbols {
			name := p.Name + "." + s.Name
			if _, twice := names[name]; twice && p.Name != "server" {
				t.Errorf("%s is listed twice", name)
			}
			names[name] = s
		}
	}
	for _, want := range []string{"sema.New", "sema.Semaphore.Acquire", "sema.ErrFull", "sema.Gate.TryAcquire", "fleet.TTL", "host.Open", "redisstore.Open"} {
		if s := names[want]; s.Text == "" || s.Declaration == "" {
			t.Errorf("%s: %+v", want, s)
		}
	}
	added, removed := difference(got, pages.Packages())
	if len(added)+len(removed) > maxBehind {
		t.Errorf("site/pages/go.json is old: run go generate ./site\nnew: %q\nremoved: %q", added, removed)
	}
}

// difference returns the symbols that only one of two lists has.
func difference(a, b []pages.Package) (onlyA, onlyB []string) {
	flat := func(all []pages.Package) (names []string) {
		for _, p := range all {
			for _, s := range p.Symbols {
				names = append(names, p.Path+"."+s.Name)
			}
		}
		return names
	}
	x, y := flat(a), flat(b)
	without := func(from, what []string) []string {
		return slices.DeleteFunc(slices.Clone(from), func(s string) bool { return slices.Contains(what, s) })
	}
	return without(x, y), without(y, x)
}
