package classic_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/sematest"
)

// The files example_*_test.go solve problems of Allen Downey's "Little Book of Semaphores".
// Each solution runs as an example, with goroutines in parallel, and is explored: under many
// schedules it must end, and its invariant must hold after each step.

// A problem is a set of goroutines.
type problem struct {
	names     []string
	roles     []func(ctx context.Context) error
	invariant func() bool
	result    func() string // what the example prints
}

// add adds a goroutine.
func (p *problem) add(name string, role func(ctx context.Context) error) {
	p.names, p.roles = append(p.names, name), append(p.roles, role)
}

// A kit provides what solutions are made of.
type kit interface {
	counter(name string, initial int64) counter
	mutex(name string) sync.Locker
	gate(g sema.Gate) sema.Gate
	yield() // other goroutines may run here
}

// A counter is a [sema.Counter], the semaphore of the textbooks.
type counter interface {
	Wait(ctx context.Context, n int64) error
	Post(n int64) error
}

// plain is the kit of the examples.
type plain struct{}

func (plain) counter(name string, initial int64) counter {
	return sema.NewCounter(initial, sema.MaxCapacity, sema.Name(name))
}
func (plain) mutex(string) sync.Locker   { return &sync.Mutex{} }
func (plain) gate(g sema.Gate) sema.Gate { return g }
func (plain) yield()                     {}

// run runs the goroutines of a problem, and returns its result.
func run(create func(k kit) *problem) string {
	p := create(plain{})
	var wg sync.WaitGroup
	var failed atomic.Value
	for _, role := range p.roles {
		wg.Go(func() {
			if err := role(context.Background()); err != nil {
				failed.Store(err)
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return err.(error).Error()
	}
	return p.result()
}

// explored is the kit of explored schedules.
type explored struct{ *sematest.World }

func (e explored) counter(name string, initial int64) counter {
	return e.Counter(sema.NewCounter(initial, sema.MaxCapacity, sema.Name(name)))
}
func (e explored) mutex(name string) sync.Locker { return e.Mutex(name) }
func (e explored) gate(g sema.Gate) sema.Gate    { return e.Gate(g) }
func (e explored) yield()                        { e.Yield() }

// problems are the solutions in this package.
var problems = map[string]func(k kit) *problem{
	"cigarette smokers":    smokers,
	"barbershop":           barbershop,
	"dining savages":       savages,
	"river crossing":       riverCrossing,
	"building H2O":         water,
	"Santa Claus":          santaClaus,
	"lightswitch":          readersAndWriters,
	"roller coaster":       rollerCoaster,
	"unisex bathroom":      bathroom,
	"child care":           childCare,
	"search-insert-delete": searchInsertDelete,
	"sushi bar":            sushiBar,
}

func TestProblems_HoldTheirInvariants(t *testing.T) {
	t.Parallel()
	for name, create := range problems {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := run(create)
			sematest.Explore(t, func(w *sematest.World) {
				p := create(explored{w})
				if p.invariant != nil {
					w.Always("the invariant of the "+name, p.invariant)
				}
				w.Finally("the result is "+want, func() bool { return p.result() == want })
				for i, role := range p.roles {
					w.Go(p.names[i], func(ctx context.Context) {
						if err := role(ctx); err != nil && ctx.Err() == nil {
							w.Errorf("%s: %v", p.names[i], err)
						}
					})
				}
			}, sematest.Schedules(schedules/3))
		})
	}
}
