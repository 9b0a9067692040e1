package sematest

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"
)

// A World runs one schedule of a program: its goroutines take turns, and the schedule
// decides at each step which of them continues. A World lives in one testing/synctest
// bubble, so that its time is virtual. [Explore] creates it.
type World struct {
	options    options
	choose     chooser
	ctx        context.Context // ends with the schedule
	cancel     context.CancelFunc
	invariants []condition // checked after each step
	finals     []condition // checked after the last step

	mu      sync.Mutex // guards what follows; no goroutine parks with it
	tasks   []*task    // started by Go
	ready   []*parked  // goroutines that wait for their turn
	running *task      // whose turn it is, or was last
	wrapped int        // gates, counters and mutexes without a name
	held    []*stepLease
	trace   []string // the steps so far
	failure string   // the first failure; "" if there is none
	over    bool     // goroutines that reach a step end there
}

// A task is a goroutine that Go started.
type task struct {
	id   int
	name string
	at   string // its last step
	done bool
}

// taskKey is the key of the task in the context of a goroutine.
type taskKey struct{}

// A parked goroutine waits for its turn.
type parked struct {
	task *task
	step string
	turn chan struct{} // closed when it is its turn
}

// A condition is one that the program must keep.
type condition struct {
	what  string
	holds func() bool
}

// Go starts a goroutine of the program. Goroutines that are started by a go statement
// run beside the schedule, in no order. The context ends with the schedule: pass it to
// everything that waits.
func (w *World) Go(name string, fn func(ctx context.Context)) {
	w.mu.Lock()
	t := &task{id: len(w.tasks), name: name}
	w.tasks = append(w.tasks, t)
	w.mu.Unlock()
	go w.run(t, fn)
}

// run runs the function of a goroutine. A panic fails the schedule.
func (w *World) run(t *task, fn func(ctx context.Context)) {
	defer func() {
		if reason := recover(); reason != nil {
			w.Errorf("%s panics: %v\n%s", t.name, reason, debug.Stack())
		}
		w.mu.Lock()
		t.done = true
		w.mu.Unlock()
	}()
	w.park(t, "starts")
	fn(context.WithValue(w.ctx, taskKey{}, t))
}

// Yield makes a step: other goroutines may run before the caller continues. Use it to
// allow interleavings where the program uses no gate, counter or mutex, for example
// between reading and writing a shared variable.
func (w *World) Yield() { w.step(nil, "yields") }

// Always fails the schedule if the condition does not hold after a step. Call it before
// the goroutines are started. The condition must not wait or step.
func (w *World) Always(what string, holds func() bool) {
	w.invariants = append(w.invariants, condition{what, holds})
}

// Finally fails the schedule if the condition does not hold when all goroutines have
// ended.
func (w *World) Finally(what string, holds func() bool) {
	w.finals = append(w.finals, condition{what, holds})
}

// Errorf fails the schedule. The first failure is reported.
func (w *World) Errorf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure == "" {
		w.failure = fmt.Sprintf(format, args...)
	}
}

// step waits for the next turn of the calling goroutine, and returns its task: the one
// whose turn it is. After virtual time has passed it is no goroutine's turn; then it is
// the likely one.
func (w *World) step(likely *task, what string) *task {
	w.mu.Lock()
	t := cmp.Or(w.running, likely)
	w.mu.Unlock()
	w.park(t, what)
	return t
}

// stepWith does what step does, for a goroutine that has passed its context.
func (w *World) stepWith(ctx context.Context, what string) *task {
	if ctx != nil {
		if t, ok := ctx.Value(taskKey{}).(*task); ok {
			w.park(t, what)
			return t
		}
	}
	return w.step(nil, what)
}

// goOn waits for the next turn of a goroutine that has waited in an operation, so that it
// does not run beside the one whose turn it is.
func (w *World) goOn(t *task, what string) {
	w.mu.Lock()
	waited := w.running != t
	w.mu.Unlock()
	if waited {
		w.park(t, what)
	}
}

// park waits for the turn of a goroutine. When the schedule is over the goroutine ends.
func (w *World) park(t *task, step string) {
	p := &parked{t, step, make(chan struct{})}
	w.mu.Lock()
	over := w.over
	if !over {
		w.ready = append(w.ready, p)
		if t != nil {
			t.at = step
		}
	}
	w.mu.Unlock()
	if !over {
		<-p.turn
		w.mu.Lock()
		over = w.over
		w.mu.Unlock()
	}
	if over {
		runtime.Goexit()
	}
}

// drive runs the schedule to its end. Between two steps every goroutine is parked, waits
// for something else, or has ended.
func (w *World) drive() {
	defer w.end()
	for {
		synctest.Wait()
		w.check(w.invariants)
		w.mu.Lock()
		failed, steps, ready, alive := w.failure != "", len(w.trace), len(w.ready), w.aliveLocked()
		w.mu.Unlock()
		switch {
		case failed:
			return
		case alive == 0 && ready == 0:
			w.check(w.finals)
			return
		case steps == w.options.steps:
			w.Errorf("no end after %d steps: a livelock, or set a higher bound with Steps", steps)
		case ready > 0:
			w.next()
		case !w.passTime():
			w.Errorf("%s", w.deadlock())
		}
	}
}

func (w *World) check(conditions []condition) {
	for _, c := range conditions {
		if !c.holds() {
			w.Errorf("violated: %s", c.what)
		}
	}
}

func (w *World) aliveLocked() (n int) {
	for _, t := range w.tasks {
		if !t.done {
			n++
		}
	}
	return n
}

// next gives one of the parked goroutines its turn. They are sorted, since goroutines
// that one step has woken park in any order, and a seed has to choose the same again.
func (w *World) next() {
	if d := w.choose.delay(w.options.slow); d > 0 {
		time.Sleep(d)
		synctest.Wait()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortStableFunc(w.ready, func(a, b *parked) int {
		return cmp.Or(cmp.Compare(a.task.number(), b.task.number()), strings.Compare(a.step, b.step))
	})
	i := w.choose.next(w.ready)
	p := w.ready[i]
	w.ready = slices.Delete(w.ready, i, i+1)
	w.running = p.task
	w.trace = append(w.trace, p.task.title()+" "+p.step)
	close(p.turn)
}

// number returns the place of the goroutine in the order of their start.
func (t *task) number() int {
	if t == nil {
		return -1
	}
	return t.id
}

// title returns the name of the goroutine. Steps before the first turn have none.
func (t *task) title() string {
	if t == nil {
		return "another goroutine"
	}
	return t.name
}

// horizon is the virtual time after which goroutines that all wait are deadlocked: much
// longer than the timeouts of programs.
const horizon = 10_000 * time.Hour

// passTime lets virtual time pass, by growing amounts, until a goroutine parks or ends. It
// reports false if none does until the horizon.
func (w *World) passTime() bool {
	w.mu.Lock()
	before := w.aliveLocked()
	w.running = nil
	w.mu.Unlock()
	for d := time.Microsecond; d < horizon; d *= 16 {
		time.Sleep(d)
		synctest.Wait()
		w.mu.Lock()
		moved := len(w.ready) > 0 || w.aliveLocked() < before
		w.mu.Unlock()
		if moved {
			return true
		}
	}
	return false
}

// deadlock describes what the goroutines wait for and hold.
func (w *World) deadlock() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	b.WriteString("deadlock")
	for _, t := range w.tasks {
		if t.done {
			continue
		}
		fmt.Fprintf(&b, "\n    %s waits after %q", t.name, t.at)
		for _, l := range w.held {
			if l.by == t {
				fmt.Fprintf(&b, ", holds %d of %s", l.permit.Weight(), l.gate)
			}
		}
	}
	return b.String()
}

// end ends the goroutines that are parked, or that wait with the context of the world.
func (w *World) end() {
	w.mu.Lock()
	w.over = true
	for _, p := range w.ready {
		close(p.turn)
	}
	w.ready = nil
	w.mu.Unlock()
	w.cancel()
	synctest.Wait()
}
