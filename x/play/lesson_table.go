package play

import (
	"context"
	"fmt"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/classic"
)

var tableLesson = Lesson{
	ID: "table", Title: "Dining philosophers", Layout: "table",
	Teaches: "Five philosophers share five forks, and each needs two. Taken naively, the forks end in a deadlock, which the diagnostics report. Four strategies never deadlock.",
	Choices: []Choice{{ID: "strategy", Label: "Strategy", Default: "Naive", Options: []Option{
		{"Naive", "Naive: left fork, then right"}, {"LowerFirst", "LowerFirst: a global order"}, {"OneLeftHanded", "OneLeftHanded: one differs"},
		{"Arbiter", "Arbiter: at most four at a time"}, {"BothOrNone", "BothOrNone: AcquireAll"}}}},
	Code: code("lesson_table.go"),
	run:  runTable,
}

const philosophers = 5

func runTable(s *Stage, set Settings) {
	reports := s.observe(func(e sema.Event) string {
		switch e.Kind {
		case sema.EventDeadlocked:
			return "Deadlock: each philosopher holds the left fork and waits for the right one, in a circle. sema.Diagnose(sema.DiagnoseFull) has found it; the report names the forks, and in a program the lines of code."
		case sema.EventInverted:
			return "The diagnostics report forks that are acquired in a circle of orders: a deadlock is possible, even if it has not happened yet."
		}
		return ""
	})
	// code:
	strategy := map[string]classic.Strategy{
		"Naive": classic.Naive, "LowerFirst": classic.LowerFirst, "OneLeftHanded": classic.OneLeftHanded,
		"Arbiter": classic.Arbiter, "BothOrNone": classic.BothOrNone,
	}[set["strategy"]]
	// end
	forks := make([]sema.Gate, philosophers)
	for i := range forks {
		// The diagnostics keep the orders of acquires by name for the whole program. A table of another
		// strategy has other forks, or the orders of the tables together would close a circle.
		// code:
		fork := sema.New(1, sema.Name(fmt.Sprintf("fork %d (%v)", i, strategy)), sema.Diagnose(sema.DiagnoseFull), reports)
		// end
		id := fmt.Sprint("fork ", i)
		s.showGate(id, id, 1)
		if forks[i] = fork; strategy != classic.BothOrNone {
			forks[i] = watchedGate{Gate: fork, id: id, reach: 600 * time.Millisecond}
		}
	}
	// code:
	table := classic.NewTableOf(strategy, forks...)
	// end
	var arbiter sema.Gate
	if strategy == classic.Arbiter {
		// NewTableOf has an arbiter of its own, which the page cannot see; this one has the same size. The
		// diagnostics have to know it: with four at five forks, the circle of orders cannot close.
		s.showGate("arbiter", "arbiter", philosophers-1)
		arbiter = watch("arbiter", sema.New(philosophers-1, sema.Name("arbiter"), sema.Diagnose(sema.DiagnoseFull), reports))
	}
	for i := range philosophers {
		s.join([]string{"Plato", "Hypatia", "Kant", "Arendt", "Laozi"}[i], "philosopher", func(ctx context.Context, w *Worker) {
			seat := table.Seat(i)
			if strategy == classic.BothOrNone {
				seat = bothGate{seat, i}
			}
			for {
				w.does("thinks", "")
				if !w.sleep(s.between(200*time.Millisecond, 400*time.Millisecond)) {
					return
				}
				w.does("hungry", "")
				err := dine(ctx, arbiter, func() error {
					// code:
					forks, err := seat.Acquire(ctx, 1) // both, as the strategy takes them
					if err != nil {
						return err
					}
					// end
					w.does("eats", fmt.Sprintf("%s has both forks and eats.", w.Name))
					// code+:
					w.sleep(1500 * time.Millisecond) // eats
					forks.Release()
					// end
					return nil
				})
				if err != nil {
					return
				}
			}
		})
	}
	s.note("%s", map[string]string{
		"Naive":         "Naive: all take the left fork at about the same time. Then each waits for a fork that its neighbour holds.",
		"LowerFirst":    "LowerFirst: each takes the fork of the lower number first. A circle would need one that takes the higher first.",
		"OneLeftHanded": "OneLeftHanded: one philosopher takes the other fork first, so the circle cannot close.",
		"Arbiter":       "Arbiter: a semaphore of four permits. With four at five forks, at least one gets two.",
		"BothOrNone":    "BothOrNone: sema.AcquireAll queues for both forks and holds none while it waits.",
	}[set["strategy"]])
}

// dine runs eat, under a permit of the arbiter if there is one.
func dine(ctx context.Context, arbiter sema.Gate, eat func() error) error {
	if arbiter == nil {
		return eat()
	}
	return sema.Do(ctx, arbiter, 1, func(context.Context) error { return eat() })
}

// A bothGate shows the seat of a philosopher that takes both forks in one step.
type bothGate struct {
	sema.Gate
	i int
}

// Acquire implements [sema.Gate].
func (g bothGate) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	w := ctx.Value(workerKey{}).(*Worker)
	left, right := fmt.Sprint("fork ", g.i), fmt.Sprint("fork ", (g.i+1)%philosophers)
	endLeft, endRight := w.asks(left, n), w.asks(right, n)
	p, err := g.Gate.Acquire(ctx, n)
	endLeft(err)
	endRight(err)
	if err != nil {
		return sema.Permit{}, err
	}
	return sema.NewPermit(n, &bothLease{watchedLease{p, w, left, n}, right}), nil
}

// A bothLease emits the release of both forks.
type bothLease struct {
	watchedLease
	right string
}

// Release implements [sema.Lease].
func (l *bothLease) Release() {
	l.worker.releases(l.right, l.n, "")
	l.watchedLease.Release()
}
