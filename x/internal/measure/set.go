// Package measure gathers the metrics of gates, for the exporters in x/prom and x/otel. It
// states each metric once, with its name, unit and meaning.
//
// Counters and gauges come from the method Stats of gates, when an exporter collects. They
// cost the gates nothing. Distributions come from a [Set] as an observer of the gates: it
// receives each wait, and the holds of a sample of permits.
//
// The number of series is bounded. Names that are registered have series of their own.
// Other names share a bounded number of series, and so do the classes of a gate; the rest
// goes to one series with the name [Other].
package measure

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/group"
	"github.com/sema-go/sema/registry"
)

// Other is the name of the series that stands for names or classes beyond the bounds.
const Other = "other"

// Defaults of [Config].
const (
	DefaultMaxNames   = 100
	DefaultMaxClasses = 50
	DefaultHoldEvery  = 64
)

// A Config bounds the series of a Set. Zero values are replaced by the defaults.
type Config struct {
	MaxNames   int      // undeclared names with series of their own; negative: none
	MaxClasses int      // undeclared classes of each gate with series of their own; negative: none
	HoldEvery  int      // of so many permits, the hold of one is measured
	Declared   []string // names and classes that always have series of their own
}

// A Recorder records the distributions of one series. Its methods may be called
// concurrently.
type Recorder interface {
	Waited(result string, seconds float64)
	Held(seconds float64)
}

// A Set is a set of gates that are measured. It is a [sema.Sampler] and a
// [sema.WaitObserver]. It is safe for concurrent use.
type Set struct {
	config   Config
	declared map[string]bool // of Config.Declared
	record   func(*Series) Recorder

	series sync.Map // key → *target, without those of folded names; read by each event
	folds  [foldKinds]atomic.Int64

	mu         sync.Mutex // guards the fields below; no gate is called under it
	registries []*registry.Registry
	added      *registry.Registry // of the gates passed to Add
	keyed      map[string]*keyed
	list       map[labels]*Series
	clashed    map[label]bool // names of gates that were observed and have the label of another one
	undeclared int            // series of undeclared names
	classes    map[label]*classes

	collecting sync.Mutex // serialises collections
}

// The kinds of what is folded.
const (
	foldName = iota
	foldClass
	foldKinds
)

var (
	_ sema.Sampler      = (*Set)(nil)
	_ sema.WaitObserver = (*Set)(nil)
)

// New returns an empty set. record returns the recorder of a new series.
func New(c Config, record func(*Series) Recorder) *Set {
	if c.MaxNames == 0 {
		c.MaxNames = DefaultMaxNames
	}
	if c.MaxClasses == 0 {
		c.MaxClasses = DefaultMaxClasses
	}
	if c.HoldEvery == 0 {
		c.HoldEvery = DefaultHoldEvery
	}
	s := &Set{
		config: c, declared: map[string]bool{Other: true}, record: record, added: registry.New(), keyed: map[string]*keyed{},
		list: map[labels]*Series{}, clashed: map[label]bool{}, classes: map[label]*classes{},
	}
	s.registries = []*registry.Registry{s.added}
	for _, name := range c.Declared {
		s.declared[name] = true
	}
	return s
}

// AddRegistry adds the gates of a registry, present and future ones.
func (s *Set) AddRegistry(r *registry.Registry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.registries = append(s.registries, r)
}

// Add adds one gate under a name. A [group.Keyed] is exported with its keys as classes.
// Other gates need a method Stats. Add panics if the name is in use.
func (s *Set) Add(name string, gate any) {
	if k, ok := gate.(*group.Keyed); ok {
		s.addKeyed(name, k)
		return
	}
	s.mu.Lock()
	inUse := s.keyed[name] != nil
	s.mu.Unlock()
	if inUse {
		panicInUse(name)
	}
	s.added.Add(name, gate, "added to an exporter")
}

func panicInUse(name string) {
	panic(fmt.Sprintf("measure: Add(%q): the name is in use", name))
}

// Remove removes a gate that Add has added, and reports whether it was there.
func (s *Set) Remove(name string) bool {
	s.mu.Lock()
	_, isKeyed := s.keyed[name]
	delete(s.keyed, name)
	s.mu.Unlock()
	return s.added.Remove(name) || isKeyed
}

func (s *Set) addKeyed(name string, k *group.Keyed) {
	_, inUse := s.added.Get(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if inUse || s.keyed[name] != nil {
		panicInUse(name)
	}
	s.keyed[name] = &keyed{keys: k, last: map[string]counts{}}
}

// version returns the version of Sema in this program, "" if it is unknown.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	const module = "github.com/sema-go/sema"
	if info.Main.Path == module || info.Main.Path == module+"/x" {
		return info.Main.Version
	}
	for _, d := range info.Deps {
		if d.Path == module {
			return d.Version
		}
	}
	return ""
}

// collectOwn yields the metrics of the exporter itself.
func (s *Set) collectOwn(yield func(Sample)) {
	yield(Sample{buildInfo, []string{version(), runtime.Version()}, 1})
	yield(Sample{folded, []string{"name"}, float64(s.folds[foldName].Load())})
	yield(Sample{folded, []string{"class"}, float64(s.folds[foldClass].Load())})
}
