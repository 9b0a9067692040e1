package play

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/wfq"
)

var inversionLesson = Lesson{
	ID: "inversion", Title: "Priority inversion", Layout: "queue",
	Teaches: "Low holds a lock that High needs, and waits behind Medium for the processor. So High waits for all of Medium. With inheritance, Low is raised to the tier of High while High waits.",
	Choices: []Choice{{ID: "inheritance", Label: "Inheritance", Default: "off", Options: []Option{{"off", "off: a plain context"}, {"on", "on: the context carries the permit"}}}},
	Code:    code("lesson_inversion.go"),
	run:     runInversion,
}

const mediumJobs = 5

func runInversion(s *Stage, set Settings) {
	// code:
	lock, cpu := wfq.New(1, sema.Name("lock")), wfq.New(1, sema.Name("cpu"))
	for _, queue := range []*wfq.Queue{lock, cpu} {
		queue.Set("high", wfq.Share{Tier: 2})
		queue.Set("medium", wfq.Share{Tier: 1})
		queue.Set("low", wfq.Share{Tier: 0})
	}
	// end
	s.showGate("lock", "lock", 1)
	s.showGate("cpu", "cpu", 1)
	work := func(ctx context.Context, w *Worker) bool {
		p, err := acquireAt(ctx, w, "cpu", cpu.Class(w.Class))
		if err != nil {
			return false
		}
		w.sleep(time.Second)
		w.releases("cpu", 1, "")
		p.Release()
		return true
	}
	low := func(ctx context.Context, w *Worker) {
		// code:
		locked, err := acquireAt(ctx, w, "lock", lock.Class("low"))
		if err != nil {
			return
		}
		if set["inheritance"] == "on" {
			inner, cancel := locked.Context(ctx) // carries the permit
			defer cancel()
			ctx = inner
		}
		work(ctx, w) // waits for the cpu in class "low"
		// end
		w.releases("lock", 1, "")
		locked.Release()
	}
	high := func(ctx context.Context, w *Worker) {
		since := time.Now()
		p, err := acquireAt(ctx, w, "lock", lock.Class("high"))
		if err != nil {
			return
		}
		if waited := time.Since(since); set["inheritance"] == "on" {
			s.note("High waited %s: for the rest of one Medium job and for Low, which inherited the tier of High while High waited.", seconds(waited))
		} else {
			s.note("High waited %s: for Low, and so for all of Medium. The tiers were inverted.", seconds(waited))
		}
		w.sleep(700 * time.Millisecond)
		w.releases("lock", 1, "")
		p.Release()
	}
	s.run(func() {
		for s.ctx.Err() == nil {
			var ended sync.WaitGroup
			start := func(name, class string, fn func(context.Context, *Worker)) {
				ended.Add(1)
				s.join(name, class, func(ctx context.Context, w *Worker) { defer ended.Done(); fn(ctx, w) })
			}
			medium := func(ctx context.Context, w *Worker) { work(ctx, w) }
			start("M1", "medium", medium)
			s.sleep(300 * time.Millisecond)
			start("Low", "low", low)
			s.note("Low acquires the lock, and queues for the cpu behind Medium.")
			for i := range mediumJobs - 1 {
				s.sleep(100 * time.Millisecond)
				start(fmt.Sprint("M", i+2), "medium", medium)
			}
			start("High", "high", high)
			s.note("High needs the lock that Low holds.")
			ended.Wait()
			s.sleep(2 * time.Second)
		}
	})
}

// acquireAt acquires a permit for a worker, and shows it at the gate id. The permit is that
// of the gate: inheritance identifies holders by it.
func acquireAt(ctx context.Context, w *Worker, id string, gate sema.Gate) (sema.Permit, error) {
	ends := w.asks(id, 1)
	p, err := gate.Acquire(ctx, 1)
	ends(err)
	return p, err
}
