package runner

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/explain"
	"github.com/sema-go/sema/cmd/sema/internal/printable"
	"github.com/sema-go/sema/cmd/sema/internal/scope"
)

const (
	// unavailableAfter bounds how long a store may be unreachable before a wait without
	// limit ends. A store that was never reached ends the wait at once.
	unavailableAfter = time.Minute
	// firstPoll is the time of the first poll of the store, without a notice.
	firstPoll = 250 * time.Millisecond
	// pollTimeout bounds one poll.
	pollTimeout = 5 * time.Second
	// retryPoll is the pause after a failed poll.
	retryPoll = 10 * time.Second
	// shown is the number of holders that a notice lists.
	shown = 5
)

// notices are the pauses before each notice to a waiting user. The last one repeats. They
// grow, because each poll reads the whole queue.
var notices = []time.Duration{2 * time.Second, 8 * time.Second, 20 * time.Second, 30 * time.Second, time.Minute}

// A poll is the result of reading the queue.
type poll struct {
	standing scope.Standing
	err      error
}

// acquire waits for a permit, and prints notices with the position in the queue.
func (w *wrapper) acquire(ctx context.Context, s scope.Semaphore) (scope.Hold, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type result struct {
		hold scope.Hold
		err  error
	}
	results, polls := make(chan result, 1), make(chan poll, 1)
	go func() {
		hold, err := s.Acquire(ctx, w.Weight)
		results <- result{hold, err}
	}()
	started, notice := time.Now(), 0
	next := time.NewTimer(firstPoll)
	defer next.Stop()
	var failing time.Time // when polls started to fail; zero: they succeed
	reached := false
	for {
		select {
		case r := <-results:
			if ended := context.Cause(ctx); ended != nil && r.err == nil {
				r.hold.Release(context.Background())
				return nil, ended
			}
			return r.hold, r.err
		case sig := <-w.signals:
			cancel(&exit.Error{Code: codeOf(sig)})
		case <-next.C:
			go func() { polls <- pollOnce(ctx, s) }()
		case l := <-polls:
			early := notices[0] - time.Since(started)
			switch {
			case early > 0:
				reached = l.err == nil
				next.Reset(early)
			case l.err == nil:
				failing, reached = time.Time{}, true
				if w.Want.Wait != 0 { // an acquire without a wait waits only for the store, which was printed
					w.Printf("%s", describe(l.standing, time.Since(started)))
				}
				notice = min(notice+1, len(notices)-1)
				next.Reset(jittered(notices[notice]))
			case !errors.Is(l.err, sema.ErrUnavailable): // the semaphore was deleted, or may not be read
				next.Reset(notices[len(notices)-1])
			case failing.IsZero():
				failing = time.Now()
				fallthrough
			default:
				if !reached || time.Since(failing) >= unavailableAfter {
					cancel(l.err)
					break
				}
				w.Printf("still waiting for %q, but the store fails: %s", w.Want.Name, explain.Cause(l.err, w.Want.Name))
				next.Reset(retryPoll)
			}
		}
	}
}

func pollOnce(ctx context.Context, s scope.Semaphore) poll {
	ctx, cancel := context.WithTimeoutCause(ctx, pollTimeout, sema.ErrUnavailable)
	defer cancel()
	standing, err := s.Standing(ctx)
	if err != nil && context.Cause(ctx) == sema.ErrUnavailable {
		err = sema.ErrUnavailable
	}
	return poll{standing, err}
}

func jittered(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5+1) }

// describe returns the notice for a waiter: its position, and a line for each holder.
func describe(s scope.Standing, waited time.Duration) printable.Lines {
	var b strings.Builder
	fmt.Fprintf(&b, "waiting for %q for %v", s.Name, waited.Round(time.Second))
	switch {
	case s.Position > 0 && s.AtMost:
		fmt.Fprintf(&b, ", position %d or better of %d in the queue", s.Position, s.Waiting)
	case s.Position > 0:
		fmt.Fprintf(&b, ", position %d of %d in the queue", s.Position, s.Waiting)
	}
	fmt.Fprintf(&b, "; %d of %d permits are held", s.InUse, s.Effective)
	if s.InUse == 0 && s.Effective > 0 && s.Position == 1 {
		b.WriteString(" (a store that was just started grants none for a TTL, since it may have lost the permits that are held)")
	}
	if len(s.Holders) > 0 {
		b.WriteString(" by")
	}
	lines := printable.Lines{b.String()}
	for i, h := range s.Holders {
		if i == shown {
			lines = append(lines, fmt.Sprintf("and %d more, see 'sema show %s'", len(s.Holders)-shown, printable.Arg(s.Name)))
			break
		}
		lines = append(lines, describeHolder(h))
	}
	return lines
}

// holderColumns is the width of a holder's line in a notice.
const holderColumns = 200

func describeHolder(p scope.Participant) string {
	var parts []string
	if p.Host != "" {
		parts = append(parts, printable.Fit(printable.Line(p.Host), holderColumns/3))
	}
	if p.Process != 0 {
		parts = append(parts, fmt.Sprintf("process %d", p.Process))
	}
	if len(parts) == 0 {
		parts = append(parts, "an unknown process")
	}
	if p.Weight != 1 {
		parts = append(parts, fmt.Sprintf("%d permits", p.Weight))
	}
	if !p.Since.IsZero() {
		parts = append(parts, fmt.Sprintf("for %v", p.For(time.Now()).Round(time.Second)))
	}
	text := strings.Join(parts, ", ")
	if p.About != "" {
		text += ": " + printable.Line(p.About)
	}
	return printable.Fit(text, holderColumns)
}

// codeOf returns the exit code of a program that a signal has ended.
func codeOf(sig os.Signal) int { return exit.Signal + numberOf(sig) }
