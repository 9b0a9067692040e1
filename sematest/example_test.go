package sematest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/sematest"
)

// A transfer that acquires both accounts in the order of their numbers cannot deadlock,
// whatever the schedule. Acquire from first and the exploration fails with the circle of
// waits and the seed that replays it.
func ExampleExplore() {
	transfer := func(t *testing.T) { // func TestTransfer(t *testing.T)
		sematest.Explore(t, func(w *sematest.World) {
			accounts := []sema.Gate{w.Gate(sema.New(1, sema.Name("account 0"))), w.Gate(sema.New(1, sema.Name("account 1")))}
			move := func(ctx context.Context, from, to int) {
				first, err := accounts[min(from, to)].Acquire(ctx, 1)
				if err != nil {
					return
				}
				defer first.Release()
				second, err := accounts[max(from, to)].Acquire(ctx, 1)
				if err != nil {
					return
				}
				defer second.Release()
			}
			w.Go("salary", func(ctx context.Context) { move(ctx, 0, 1) })
			w.Go("rent", func(ctx context.Context) { move(ctx, 1, 0) })
		})
	}
	_ = transfer
}

// An invariant is checked after each step of each schedule.
func ExampleWorld_Always() {
	inventory := func(t *testing.T) { // func TestInventory(t *testing.T)
		sematest.Explore(t, func(w *sematest.World) {
			stock, sold := 1, 0
			mu := w.Mutex("stock")
			w.Always("nothing is sold twice", func() bool { return sold <= 1 })
			for i := range 2 {
				w.Go(fmt.Sprint("customer ", i), func(context.Context) {
					mu.Lock() // without it, both may find the item in stock
					defer mu.Unlock()
					if stock > 0 {
						w.Yield()
						stock, sold = stock-1, sold+1
					}
				})
			}
		})
	}
	_ = inventory
}

// A program that uses a store has to survive that permits are lost and acquires fail.
func ExampleWrap() {
	db := sematest.Wrap(sema.New(2, sema.Name("db")), 1, // the seed
		sematest.Reject(0.5, sema.ErrUnavailable),
		sematest.Lose(0.1, time.Minute))
	failed := 0
	for range 100 {
		permit, err := db.TryAcquire(context.Background(), 1)
		if errors.Is(err, sema.ErrUnavailable) {
			failed++
		}
		permit.Release()
	}
	fmt.Println(failed == db.Injected().Rejected, failed > 30)
	// Output: true true
}

// The suite checks a gate of one's own: here one that logs.
func ExampleCheck() {
	conforms := func(t *testing.T) { // func TestLogged_Conforms(t *testing.T)
		sematest.Check(t, sematest.Traits{FIFO: true, Weights: true, Split: true}, func(_ *testing.T, capacity int64) sema.Gate {
			return logged{sema.New(capacity)}
		})
	}
	_ = conforms
}

type logged struct{ sema.Gate }

func (l logged) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	p, err := l.Gate.Acquire(ctx, n)
	fmt.Println("acquire", n, err)
	return p, err
}

// A test that forgets a permit fails, and with diagnostics shows where it was acquired.
func ExampleNoneHeld() {
	handler := func(t *testing.T) { // func TestHandler(t *testing.T)
		db := sema.New(4, sema.Name("db"), sema.Diagnose(sema.DiagnoseFull))
		sematest.NoneHeld(t, db)
		// … use db
	}
	_ = handler
}
