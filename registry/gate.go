package registry

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"strings"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/gatestats"
	"github.com/sema-go/sema/wfq"
)

// The abilities that a gate may have. Each is optional.
type (
	// A resizer changes its capacity at once.
	resizer interface{ Resize(capacity int64) }
	// A sharedGate is used by other processes as well: a change does I/O, may fail, and
	// affects all of them.
	sharedGate interface {
		Resize(ctx context.Context, capacity int64) error
	}
	// A rated gate has a rate instead of a capacity.
	rated interface {
		Rate() (n int64, per time.Duration, burst int64)
		Set(n int64, per time.Duration)
	}
	// A classed gate divides its capacity among classes.
	classed interface {
		Classes() iter.Seq2[string, wfq.Stats]
		Set(name string, s wfq.Share)
		Unset(name string)
	}
	drainer interface {
		Drain(ctx context.Context) error
	}
)

// A gate is what was registered, with its abilities. Those that it does not have are nil.
type gate struct {
	value any
	kind  string
	name  string // its own, in errors, events and [sema.Holders]; "": none
	stats func() (sema.Stats, any)

	local   resizer
	shared  sharedGate
	rate    rated
	classes classed
	drains  drainer
}

// shares are the shares of classes by name.
type shares = map[string]wfq.Share

// gateOf returns the abilities of a gate. It panics if it has no statistics.
func gateOf(op, name string, value any) gate {
	v := reflect.ValueOf(value)
	if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		panic(fmt.Sprintf("registry: %s(%q): the gate is nil", op, name))
	}
	g := gate{value: value, kind: kindOf(v.Type()), stats: gatestats.Of(value)}
	if g.stats == nil {
		panic(fmt.Sprintf("registry: %s(%q): %T has no method Stats() that returns a sema.Stats or a struct that embeds it", op, name, value))
	}
	if named, ok := value.(interface{ Name() string }); ok {
		g.name = named.Name()
	}
	g.local, _ = value.(resizer)
	g.shared, _ = value.(sharedGate)
	g.rate, _ = value.(rated)
	g.classes, _ = value.(classed)
	g.drains, _ = value.(drainer)
	return g
}

// kindOf returns the type without pointer and type parameters, such as "pool.Pool".
func kindOf(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	kind, _, _ := strings.Cut(t.String(), "[")
	return kind
}

// identity returns the gate as a key of a map, or nil if it is not a pointer.
func (g *gate) identity() any {
	if reflect.TypeOf(g.value).Kind() == reflect.Pointer {
		return g.value
	}
	return nil
}

// resizes reports whether the gate has a capacity that can change.
func (g *gate) resizes() bool { return g.local != nil || g.shared != nil }

// current returns the value that is in force, or was last known.
func (g *gate) current() Value {
	st, _ := g.stats()
	return g.valueOf(st)
}

// valueOf returns the value of a gate with these statistics.
func (g *gate) valueOf(st sema.Stats) Value {
	if g.rate != nil {
		n, window, _ := g.rate.Rate()
		return Value{n, window}
	}
	return Value{Capacity: st.Capacity}
}

// currentShares returns the shares of the classes.
func (g *gate) currentShares() shares {
	if g.classes == nil {
		return nil
	}
	all := shares{}
	for name, st := range g.classes.Classes() {
		all[name] = st.Share
	}
	return all
}

// change sets the value of a gate that no other process uses.
func (g *gate) change(to Value) {
	switch {
	case g.rate != nil:
		g.rate.Set(to.Capacity, to.Window)
	case g.local != nil:
		g.local.Resize(to.Capacity)
	}
}

// changeShares sets the classes of want. Those that only applied has return to initial.
func (g *gate) changeShares(initial, applied, want shares) {
	for name, share := range want {
		if old, ok := applied[name]; !ok || old != share {
			g.classes.Set(name, share)
		}
	}
	for name := range maps.Keys(applied) {
		if _, ok := want[name]; ok {
			continue
		}
		if share, ok := initial[name]; ok {
			g.classes.Set(name, share)
		} else {
			g.classes.Unset(name)
		}
	}
}

// startDrain makes the gate reject callers, and does not wait for held permits.
func (g *gate) startDrain() {
	if g.drainsAlone() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = g.drains.Drain(ended) // the error is that permits are held
	}
}

// drainsAlone reports whether a drain affects this process only.
func (g *gate) drainsAlone() bool { return g.drains != nil && g.shared == nil }
