package play

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/sema-go/sema"
)

// A Kind is what an [Event] reports.
type Kind string

// The kinds of events.
const (
	KindGate     Kind = "gate"     // a gate is shown, or has another capacity N
	KindJoined   Kind = "joined"   // a worker is shown
	KindLeft     Kind = "left"     // a worker has ended
	KindAsked    Kind = "asked"    // a worker calls Acquire; it is queued unless KindAcquired follows at once
	KindAcquired Kind = "acquired" // Acquire has returned a permit of weight N
	KindReleased Kind = "released"
	KindFailed   Kind = "failed" // Acquire has returned an error
	KindLevel    Kind = "level"  // N tokens or items
	KindDoing    Kind = "doing"  // what a worker does now, in Text
	KindLost     Kind = "lost"   // a worker has lost its lease
	KindBeat     Kind = "beat"   // a machine has sent a batch to the store
	KindWrote    Kind = "wrote"  // a write with fence N; OK: it was accepted
	KindReport   Kind = "report" // a report of Sema's diagnostics, in Report
	KindNote     Kind = "note"   // a caption only
)

// An Event is one step of a lesson.
type Event struct {
	At      float64 `json:"at"` // milliseconds since the start
	Kind    Kind    `json:"kind"`
	Gate    string  `json:"gate,omitempty"`
	Worker  string  `json:"worker,omitempty"`
	Class   string  `json:"class,omitempty"`
	N       int64   `json:"n,omitempty"`
	OK      bool    `json:"ok,omitempty"`
	Text    string  `json:"text,omitempty"`
	Report  string  `json:"report,omitempty"`
	Caption string  `json:"caption,omitempty"` // what this step teaches
}

// A Stage is one run of a lesson.
type Stage struct {
	lesson   Lesson
	ctx      context.Context
	cancel   context.CancelFunc
	began    time.Time
	commands map[string]func(Settings) error
	running  sync.WaitGroup
	why      string // appended to captions of acquires that waited: why it was their turn

	mu      sync.Mutex // serialises emit, and guards what follows
	emit    func(Event)
	random  *rand.Rand
	waiting []wait
	stopped bool
}

// A wait is an acquire that has not returned.
type wait struct {
	worker *Worker
	gate   string
	since  time.Time
	noted  time.Duration // the wait that the last caption about it has reported
}

// Stop ends all workers and waits for them. Nothing is emitted afterwards.
func (s *Stage) Stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.cancel()
	s.running.Wait()
}

// Do executes a command of the lesson.
func (s *Stage) Do(id string, with Settings) error {
	for _, c := range s.lesson.Commands {
		if c.ID != id {
			continue
		}
		set, err := complete(c.With, with)
		if err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		return s.commands[id](set)
	}
	return fmt.Errorf("%s: lesson %s has no such command", id, s.lesson.ID)
}

// send emits an event, unless the run was stopped.
func (s *Stage) send(e Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sendLocked(e)
}

func (s *Stage) sendLocked(e Event) {
	if s.stopped {
		return
	}
	e.At = float64(time.Since(s.began).Microseconds()) / 1000
	s.emit(e)
}

func (s *Stage) note(format string, args ...any) {
	s.send(Event{Kind: KindNote, Caption: fmt.Sprintf(format, args...)})
}

func (s *Stage) showGate(id, text string, capacity int64) {
	s.send(Event{Kind: KindGate, Gate: id, Text: text, N: capacity})
}

// run runs a function in a goroutine that Stop waits for.
func (s *Stage) run(fn func()) {
	s.running.Go(fn)
}

// between returns a random duration; each run of a lesson has the same ones.
func (s *Stage) between(least, most time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return least + time.Duration(s.random.Int64N(int64(most-least)+1))
}

// sleep returns false if the run ends first.
func (s *Stage) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// observe returns the option that shows what Sema's own diagnostics report.
func (s *Stage) observe(caption func(sema.Event) string) sema.SharedOption {
	return sema.Observe(sema.ObserverFunc(func(e sema.Event) {
		if text := caption(e); text != "" {
			s.send(Event{Kind: KindReport, Gate: e.Name, Text: e.Kind.String(), Report: withoutStacks(e.Report), Caption: text})
		}
	}))
}

// withoutStacks returns a report without the stacks of its callers: here, they contain only
// frames of the playground.
func withoutStacks(report string) string {
	var kept []string
	for line := range strings.Lines(report) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "\t") {
			continue
		}
		line = strings.TrimSuffix(strings.TrimSuffix(line, " at"), ", acquired")
		kept = append(kept, line)
	}
	return strings.Join(kept, "\n")
}

// watchWaits notes every wait that exceeds limit, and again each time it has doubled.
func (s *Stage) watchWaits(limit time.Duration, caption func(w *Worker, waited time.Duration) string) {
	s.run(func() {
		for s.sleep(500 * time.Millisecond) {
			s.mu.Lock()
			for i := range s.waiting {
				at := &s.waiting[i]
				waited := time.Since(at.since)
				if waited < limit || waited < 2*at.noted {
					continue
				}
				at.noted = waited
				s.sendLocked(Event{Kind: KindNote, Worker: at.worker.Name, Gate: at.gate, Caption: caption(at.worker, waited)})
			}
			s.mu.Unlock()
		}
	})
}

// A Worker is a goroutine that the page shows.
type Worker struct {
	Name  string
	Class string
	stage *Stage
	ctx   context.Context // carries the worker
	end   context.CancelFunc
}

type workerKey struct{}

// join shows a worker and runs fn as its program.
func (s *Stage) join(name, class string, fn func(ctx context.Context, w *Worker)) *Worker {
	w := &Worker{Name: name, Class: class, stage: s}
	ctx, end := context.WithCancel(s.ctx)
	w.ctx, w.end = context.WithValue(ctx, workerKey{}, w), end
	s.send(Event{Kind: KindJoined, Worker: name, Class: class})
	s.run(func() {
		defer end()
		defer s.send(Event{Kind: KindLeft, Worker: name})
		fn(w.ctx, w)
	})
	return w
}

// sleep returns false if the worker ends first.
func (w *Worker) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// does shows what the worker does.
func (w *Worker) does(text, caption string) {
	w.stage.send(Event{Kind: KindDoing, Worker: w.Name, Text: text, Caption: caption})
}

// asks emits that the worker calls Acquire. The returned function emits the result, and
// returns how long the call took.
func (w *Worker) asks(gate string, n int64) (ends func(error) time.Duration) {
	s, since := w.stage, time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sendLocked(Event{Kind: KindAsked, Worker: w.Name, Class: w.Class, Gate: gate, N: n})
	s.waiting = append(s.waiting, wait{worker: w, gate: gate, since: since})
	return func(err error) time.Duration {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, at := range s.waiting {
			if at.worker == w && at.gate == gate {
				s.waiting = append(s.waiting[:i], s.waiting[i+1:]...)
				break
			}
		}
		waited := time.Since(since)
		e := Event{Kind: KindAcquired, Worker: w.Name, Class: w.Class, Gate: gate, N: n}
		switch {
		case err == nil && waited > time.Millisecond:
			e.Caption = s.served(w, gate, waited, n)
		case err == nil && s.overtakesLocked(w, gate):
			e.Caption = fmt.Sprintf("%s acquires at once, and overtakes the queue.", w.Name)
		case errors.Is(err, context.Canceled):
			e.Kind = KindFailed
		case err != nil:
			e.Kind, e.Text = KindFailed, err.Error()
			e.Caption = fmt.Sprintf("%s gets an error: %v. %s", w.Name, err, sema.Hint(err))
		}
		s.sendLocked(e)
		return waited
	}
}

// served returns the caption of an acquire that had to wait.
func (s *Stage) served(w *Worker, gate string, waited time.Duration, n int64) string {
	switch {
	case s.lesson.Layout == "bucket":
		return fmt.Sprintf("%s waited %s, and spends %s.", w.Name, seconds(waited), amount(n, "token"))
	case s.lesson.Layout == "table" && gate != "arbiter":
		return fmt.Sprintf("%s waited %s for %s.", w.Name, seconds(waited), gate)
	case gate != "pool":
		return fmt.Sprintf("%s waited %s for the %s.", w.Name, seconds(waited), gate)
	case n > 1:
		return fmt.Sprintf("%s waited %s until %d permits were free at once. The callers behind it waited as well, so that it does not starve.", w.Name, seconds(waited), n)
	}
	return fmt.Sprintf("%s waited %s, and now holds a permit.%s", w.Name, seconds(waited), s.why)
}

// overtakesLocked reports whether a caller of the gate has been waiting since before now. The
// two sides of a buffer wait for different things.
func (s *Stage) overtakesLocked(w *Worker, gate string) bool {
	for _, at := range s.waiting {
		if at.gate == gate && time.Since(at.since) > time.Millisecond && (s.lesson.ID != "buffer" || at.worker.Class == w.Class) {
			return true
		}
	}
	return false
}

// releases emits that the worker releases a permit. It is called before Release, so that no
// other worker seems to hold the permit at the same time.
func (w *Worker) releases(gate string, n int64, caption string) {
	w.stage.send(Event{Kind: KindReleased, Worker: w.Name, Gate: gate, N: n, Caption: caption})
}

func seconds(d time.Duration) string {
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func amount(n int64, of string) string {
	if n == 1 {
		return "a " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}
