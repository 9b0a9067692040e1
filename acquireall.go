package sema

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
)

// A Want is a request of [AcquireAll]: N permits of Gate.
type Want struct {
	Gate Gate
	N    int64
}

// A Scope is the reach of a gate. AcquireAll acquires from the widest scope first.
// A Gate declares its scope with a method Scope() Scope; without one it is
// ProcessScope.
type Scope uint8

// The scopes, from the narrowest to the widest.
const (
	ProcessScope Scope = iota
	HostScope
	FleetScope
)

// AcquireAll waits for all wants and returns them as one permit, whose weight is
// their sum. On failure it holds none of them. If a gate is given twice, its weights
// are added up.
//
// AcquireAll holds no permit of the *Semaphores among the wants while it waits for
// them. It joins all their queues at once, and is granted when it is next in each of
// them and everything fits. At the head of a fair queue it delays the waiters behind
// it, like any heavy waiter, even while it waits for another semaphore.
//
// Other gates are acquired before that, one after the other, in the same order for
// all callers: by scope, fleet first, then by name. So callers of AcquireAll that
// hold nothing else cannot deadlock with each other.
//
// A failure refunds what rates have granted, exactly: it calls the gate's method
// Settle(Permit, int64), if there is one, with a cost of 0. On success the permits of
// rates are spent, and their cost cannot be settled any more.
func AcquireAll(ctx context.Context, wants ...Want) (Permit, error) {
	if err := checkWants(ctx, wants); err != nil {
		return Permit{}, err
	}
	locals, others := mergeWants(wants)
	held := jointLease{ended: make(chan struct{})}
	kept := false
	var spent []refund
	defer func() {
		if !kept {
			defer held.Release()
			for _, r := range spent {
				defer r.rate.Settle(r.permit, 0)
			}
		}
	}()
	for _, w := range others {
		p, err := w.Gate.Acquire(ctx, w.N)
		if err != nil {
			return Permit{}, err
		}
		held.add(p)
		if rate, ok := w.Gate.(settler); ok {
			spent = append(spent, refund{rate, p})
		}
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

// A settler is a gate whose permits are spent when they are granted, such as a rate. Settle
// with a cost of 0 refunds a permit, and does nothing for one that is inert or not spent.
type settler interface {
	Settle(p Permit, cost int64)
}

// A refund is a permit that has to be refunded on failure.
type refund struct {
	rate   settler
	permit Permit
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
			return &Error{Op: "acquire all", Name: nameOf(w.Gate), Err: ErrInvalid,
				Detail: fmt.Sprintf("want %d has a negative weight, %d", i, w.N), Advice: "pass a weight of 0 or more"}
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// A localWant is a Want whose gate is a Semaphore.
type localWant struct {
	sem *Semaphore
	n   int64
}

// mergeWants adds up duplicates and sorts the wants: semaphores in the order in which
// they are locked, other gates in the order in which they are acquired.
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

// addressesIn returns the pointers in g. They order gates with no name or the same
// name, because what they point to does not move.
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
