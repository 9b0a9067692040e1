package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
)

// A counted gate is a minimal custom gate: a counter, with permits from an
// Issuer or from NewPermit.
type counted struct {
	free   atomic.Int64
	issuer sema.Issuer
}

func newCounted(capacity int64) *counted {
	g := &counted{}
	g.free.Store(capacity)
	g.issuer.Init(g, nil)
	return g
}

func (g *counted) take(n int64) bool {
	free := g.free.Load()
	return free >= n && g.free.CompareAndSwap(free, free-n)
}

// TakeBack implements [sema.Owner].
func (g *counted) TakeBack(n int64) { g.free.Add(n) }

// A countedLease returns one permit.
type countedLease struct {
	gate *counted
	n    int64
}

// Release implements [sema.Lease].
func (l *countedLease) Release() { l.gate.free.Add(l.n) }

var (
	gateOfIssuer = contender{"gate on sema.Issuer", func(capacity int64) pairs {
		g := newCounted(capacity)
		return func(ctx context.Context, n int, weight int64, hold func()) {
			for range n {
				if ctx.Err() != nil || !g.take(weight) {
					panic("the gate is full")
				}
				p := g.issuer.Permit(weight)
				hold()
				p.Release()
			}
		}
	}}

	gateOfLeases = contender{"gate on sema.NewPermit", func(capacity int64) pairs {
		g := newCounted(capacity)
		return func(ctx context.Context, n int, weight int64, hold func()) {
			for range n {
				if ctx.Err() != nil || !g.take(weight) {
					panic("the gate is full")
				}
				p := sema.NewPermit(weight, &countedLease{g, weight})
				hold()
				p.Release()
			}
		}
	}}

	semaObserved = contender{"sema.Semaphore observed", semaphorePairs(sema.Observe(sema.ObserverFunc(func(sema.Event) {})))}

	// semaTimed is a pair with two clock readings: the minimum cost of an
	// observer that measures the time itself.
	semaTimed = contender{"sema.Semaphore + 2 × time.Since", func(capacity int64) pairs {
		s, epoch := sema.New(capacity), time.Now()
		return func(ctx context.Context, n int, weight int64, hold func()) {
			for range n {
				p, err := s.Acquire(ctx, weight)
				must(err)
				began := time.Since(epoch)
				hold()
				p.Release()
				if time.Since(epoch) < began {
					panic("the clock stepped back")
				}
			}
		}
	}}
)
