package registry

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/callsite"
)

// A Registry is a set of named limits. The zero Registry is empty and ready to use. It is
// safe for concurrent use.
type Registry struct {
	options options

	loading sync.Mutex // held while a file is applied, which may do I/O

	mu       sync.Mutex // guards the fields below; no gate and no function of the user is called under it
	entries  map[string]*entry
	byGate   map[any]*entry      // only pointers
	byEvent  map[string][]*entry // by the name in events, in the order of registration
	expected []string
	settings map[string]*setting // what the loaded file sets, also for names that are not registered
	file     fileState
	draining bool
}

// An entry is a registered gate.
type entry struct {
	name, why, site string
	gate            gate
	initial         Value // what the program asked for

	mu      sync.Mutex // serialises changes by files; held during the I/O of shared gates
	applied *setting   // guarded by mu; nil: none
	shares  shares     // those of the program; not changed after registration

	problem error // guarded by Registry.mu: why the loaded setting is not in force; nil: it is
}

// eventName returns the name in the events of the gate.
func (e *entry) eventName() string { return cmp.Or(e.gate.name, e.name) }

// Default is the registry of the program, for packages that register limits when they are
// initialised. Tests use a registry of their own.
var Default = New()

// Semaphore creates a semaphore in the registry [Default]. See [Registry.Semaphore].
func Semaphore(name string, capacity int64, why string, opts ...sema.Option) *sema.Semaphore {
	return Default.Semaphore(name, capacity, why, opts...)
}

// Add registers a gate in the registry [Default]. See [Registry.Add].
func Add(name string, gate any, why string) { Default.Add(name, gate, why) }

// New returns an empty registry.
func New(opts ...Option) *Registry {
	r := new(Registry)
	for _, opt := range opts {
		opt.apply(&r.options)
	}
	return r
}

// Semaphore creates and registers a semaphore. Its capacity is that of the loaded file if
// the file sets it, and capacity otherwise. The semaphore has the name, whatever the
// options set.
//
// why is the reason for the limit: what breaks if it is higher. It is shown wherever the
// limit is listed.
//
// Semaphore panics if the name is registered already, if name or why is empty, and if
// capacity is negative.
func (r *Registry) Semaphore(name string, capacity int64, why string, opts ...sema.Option) *sema.Semaphore {
	check("Semaphore", name, why)
	if capacity < 0 {
		panic(fmt.Sprintf("registry: Semaphore(%q, %d): capacity is negative; use 0 to pause", name, capacity))
	}
	initial := Value{Capacity: min(capacity, sema.MaxCapacity)}
	opts = slices.Concat(r.options.each, opts, []sema.Option{sema.Name(name)})
	e := &entry{name: name, why: why, site: callsite.Here(), initial: initial}

	r.mu.Lock()
	if set := r.settings[name]; set != nil && set.capacity != nil && set.window == 0 && set.classes == nil {
		capacity = *set.capacity // from the start, instead of by a Resize
	}
	r.mu.Unlock()
	s := sema.New(capacity, opts...)
	e.gate = gateOf("Semaphore", name, s)
	r.register("Semaphore", e)
	return s
}

// Add registers a gate that exists: a rate, a fair queue, a pool, a semaphore of a host or a
// fleet, or a gate of your own. The gate needs a method Stats that returns a [sema.Stats] or
// a struct that embeds one.
//
// If the loaded file sets the name, Add applies that to the gate. For gates that other
// processes use as well, which is I/O, that takes at most 10 s; see [Registry.Load].
//
// Add panics if the name or the gate is registered already, and if name or why is empty.
func (r *Registry) Add(name string, gate any, why string) {
	check("Add", name, why)
	e := &entry{name: name, why: why, site: callsite.Here(), gate: gateOf("Add", name, gate)}
	e.initial, e.shares = e.gate.current(), e.gate.currentShares()
	r.register("Add", e)
}

// register inserts e, and applies what the loaded file sets.
func (r *Registry) register(op string, e *entry) {
	r.mu.Lock()
	if text := r.conflictLocked(op, e); text != "" {
		r.mu.Unlock()
		panic(text)
	}
	if r.entries == nil {
		r.entries, r.byGate, r.byEvent = map[string]*entry{}, map[any]*entry{}, map[string][]*entry{}
	}
	r.entries[e.name] = e
	r.byEvent[e.eventName()] = append(r.byEvent[e.eventName()], e)
	if key := e.gate.identity(); key != nil {
		r.byGate[key] = e
	}
	configured, draining := r.settings[e.name] != nil, r.draining
	r.mu.Unlock()
	if configured {
		ctx, cancel := bounded()
		defer cancel()
		r.settle(ctx, e)
	}
	if draining {
		e.gate.startDrain()
	}
}

// conflictLocked returns why e cannot be registered, or "".
func (r *Registry) conflictLocked(op string, e *entry) string {
	if other := r.entries[e.name]; other != nil {
		return fmt.Sprintf("registry: %s(%q) at %s (why: %s): the name is registered at %s (why: %s); "+
			"use one name for each limit, or share the gate that is registered", op, e.name, e.site, e.why, other.site, other.why)
	}
	if key := e.gate.identity(); key != nil && r.byGate[key] != nil {
		other := r.byGate[key]
		return fmt.Sprintf("registry: %s(%q) at %s (why: %s): the gate is registered as %q at %s (why: %s); "+
			"two names for one limit would be configured against each other", op, e.name, e.site, e.why, other.name, other.site, other.why)
	}
	return ""
}

// Remove removes a limit, and reports whether it was registered. The gate itself goes on.
// Use it for limits that end before the program does. What the loaded file sets for the
// name applies again if the name is registered again; a later load requires that it is,
// or that [Registry.Expect] has it.
func (r *Registry) Remove(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[name]
	if e == nil {
		return false
	}
	delete(r.entries, name)
	if key := e.gate.identity(); key != nil {
		delete(r.byGate, key)
	}
	if rest := slices.DeleteFunc(r.byEvent[e.eventName()], func(other *entry) bool { return other == e }); len(rest) > 0 {
		r.byEvent[e.eventName()] = rest
	} else {
		delete(r.byEvent, e.eventName())
	}
	return true
}

// Expect declares names that are registered later, so that a file may set them before. A
// name that ends in * stands for all names that start with what is before it.
func (r *Registry) Expect(names ...string) {
	for _, name := range names {
		if text := nameFault(name); text != "" {
			panic(fmt.Sprintf("registry: Expect(%q): %s", name, text))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range names {
		if !slices.Contains(r.expected, name) {
			r.expected = append(r.expected, name)
		}
	}
}

// expectsLocked reports whether name was declared by Expect.
func (r *Registry) expectsLocked(name string) bool {
	return slices.ContainsFunc(r.expected, func(pattern string) bool {
		prefix, open := strings.CutSuffix(pattern, "*")
		return pattern == name || open && strings.HasPrefix(name, prefix)
	})
}

// Get returns the limit of a name, with its statistics at this moment. It reports false if
// the name is not registered.
func (r *Registry) Get(name string) (Limit, bool) {
	r.mu.Lock()
	e := r.entries[name]
	if e == nil {
		r.mu.Unlock()
		return Limit{}, false
	}
	l := r.describeLocked(e)
	r.mu.Unlock()
	return l.measured(), true
}

// Observed returns the limit that the events of a gate are about, without statistics. The
// name is that in the events: the one that the options of the gate set, which may differ from
// the name of the limit. If several gates have it, the limit is that registered first. The
// cost does not depend on the number of limits, so that an observer may call it.
func (r *Registry) Observed(name string) (Limit, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if found := r.byEvent[name]; len(found) > 0 {
		return r.describeLocked(found[0]), true
	}
	return Limit{}, false
}

// All yields all limits, sorted by name, with their statistics at the moment they are
// yielded. Limits may be registered and removed meanwhile. It does no I/O.
func (r *Registry) All() iter.Seq2[string, Limit] {
	return func(yield func(string, Limit) bool) {
		for _, l := range r.list(func(string) bool { return true }) {
			if !yield(l.Name, l.measured()) {
				return
			}
		}
	}
}

// list returns the limits whose names match, sorted by name, without statistics.
func (r *Registry) list(match func(name string) bool) []Limit {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []Limit
	for name, e := range r.entries {
		if match(name) {
			list = append(list, r.describeLocked(e))
		}
	}
	slices.SortFunc(list, func(a, b Limit) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// String returns how many limits there are, and the loaded file.
func (r *Registry) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file.path == "" {
		return fmt.Sprintf("registry: %d limits", len(r.entries))
	}
	return fmt.Sprintf("registry: %d limits, %d set by %s", len(r.entries), len(r.settings), r.file.path)
}

// GoString returns the same as String.
func (r *Registry) GoString() string { return r.String() }

// LogValue implements [slog.LogValuer].
func (r *Registry) LogValue() slog.Value { return slog.StringValue(r.String()) }

// check panics if a name or a reason cannot be registered.
func check(op, name, why string) {
	if text := nameFault(name); text != "" {
		panic(fmt.Sprintf("registry: %s(%q): %s", op, name, text))
	}
	if strings.TrimSpace(why) == "" || !utf8.ValidString(why) {
		panic(fmt.Sprintf("registry: %s(%q): why is %q; state what breaks if the limit is higher, so that it can be changed safely", op, name, why))
	}
}

const maxName = 200

// nameFault returns what is wrong with a name, or "".
func nameFault(name string) string {
	printable := func(c rune) bool { return unicode.IsPrint(c) && c != utf8.RuneError }
	switch {
	case name == "":
		return "the name is empty; want printable characters"
	case len(name) > maxName:
		return fmt.Sprintf("the name has %d bytes; want at most %d", len(name), maxName)
	case strings.TrimSpace(name) != name || strings.ContainsFunc(name, func(c rune) bool { return !printable(c) }):
		return "the name has characters that are not visible; want printable ones, with no space at the start or the end"
	}
	return ""
}

// ioTimeout bounds the changes of gates that do I/O.
const ioTimeout = 10 * time.Second

// bounded returns a context for such changes.
func bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), ioTimeout)
}
