package sema

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
)

// A Want is one of the gates to [AcquireAll], and how much of it.
type Want struct {
	Gate Gate
	N    int64
}

// A Scope is how far a gate reaches. AcquireAll takes from the farthest first.
// A Gate says so by a method Scope() Scope; without one it is ProcessScope.
type Scope uint8

// The scopes.
const (
	ProcessScope Scope = iota
	HostScope
	FleetScope
)

// AcquireAll waits for all wants and returns them as one permit, whose weight
// is their sum; on failure it holds none of them. The same gate given twice
// counts once, with the sum.
//
// Of the *Semaphores among them it holds none while it waits: it joins all
// their lines at once, and is served when its turn has come in each and all
// fit. Being first in a fair queue it keeps those behind it waiting, like any
// heavy waiter, even while it waits for another semaphore. Other gates are acquired one after the other before that, in one order
// for all callers: by scope, fleet first, then by name. So callers of
// AcquireAll who hold nothing else cannot block each other for ever.
func AcquireAll(ctx context.Context, wants ...Want) (Permit, error) {
	if err := checkWants(ctx, wants); err != nil {
		return Permit{}, err
	}
	locals, others := mergeWants(wants)
	held := jointLease{ended: make(chan struct{})}
	kept := false
	defer func() {
		if !kept {
			held.Release()
		}
	}()
	for _, w := range others {
		p, err := w.Gate.Acquire(ctx, w.N)
		if err != nil {
			return Permit{}, err
		}
		held.add(p)
	}
	if err := held.acquireJointly(ctx, locals); err != nil {
		return Permit{}, err
	}
	kept = true
	switch len(held.permits) {
	case 0:
		return Permit{}, nil
	case 1:
		return held.permits[0], nil
	}
	return NewPermit(held.weight, &held), nil
}

func checkWants(ctx context.Context, wants []Want) error {
	invalid := func(detail string) error {
		return &Error{Op: "acquire all", Err: ErrInvalid, Detail: detail}
	}
	if ctx == nil {
		return invalid(nilContext)
	}
	for i, w := range wants {
		if v := reflect.ValueOf(w.Gate); w.Gate == nil || v.Kind() == reflect.Pointer && v.IsNil() {
			return invalid(fmt.Sprintf("want %d has no gate", i))
		}
		if w.N < 0 {
			return invalid(fmt.Sprintf("want %d has a negative weight, %d", i, w.N))
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// A localWant is a Want of a semaphore.
type localWant struct {
	sem *Semaphore
	n   int64
}

// mergeWants adds duplicates up and sorts: semaphores by the order in which
// they are locked, others by the order in which they are acquired.
func mergeWants(wants []Want) (locals []localWant, others []Want) {
	for _, w := range wants {
		if s, ok := w.Gate.(*Semaphore); ok {
			i := slices.IndexFunc(locals, func(l localWant) bool { return l.sem == s })
			if i < 0 {
				locals = append(locals, localWant{s, w.N})
			} else {
				locals[i].n = addWeights(locals[i].n, w.N)
			}
			continue
		}
		i := slices.IndexFunc(others, func(o Want) bool {
			return reflect.ValueOf(w.Gate).Comparable() && reflect.ValueOf(o.Gate).Comparable() && o.Gate == w.Gate
		})
		if i < 0 {
			others = append(others, w)
		} else {
			others[i].N = addWeights(others[i].N, w.N)
		}
	}
	slices.SortFunc(locals, func(a, b localWant) int { return cmp.Compare(a.sem.core.id, b.sem.core.id) })
	slices.SortStableFunc(others, func(a, b Want) int {
		return cmp.Or(cmp.Compare(scopeOf(b.Gate), scopeOf(a.Gate)), cmp.Compare(nameOf(a.Gate), nameOf(b.Gate)), slices.Compare(addressesIn(a.Gate), addressesIn(b.Gate)))
	})
	return locals, others
}

func addWeights(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func scopeOf(g Gate) Scope {
	if s, ok := g.(interface{ Scope() Scope }); ok {
		return s.Scope()
	}
	return ProcessScope
}

func nameOf(g Gate) string {
	if n, ok := g.(interface{ Name() string }); ok {
		return n.Name()
	}
	return ""
}

// addressesIn orders gates that have no name, or the same one: by what they
// point to, which does not move.
func addressesIn(g Gate) []uintptr { return appendAddresses(nil, reflect.ValueOf(g)) }

func appendAddresses(list []uintptr, v reflect.Value) []uintptr {
	switch v.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Chan, reflect.Func, reflect.UnsafePointer:
		return append(list, v.Pointer())
	case reflect.Interface:
		return appendAddresses(list, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			list = appendAddresses(list, v.Field(i))
		}
	}
	return list
}
