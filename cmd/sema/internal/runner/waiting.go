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
	"github.com/sema-go/sema/cmd/sema/internal/printable"
	"github.com/sema-go/sema/cmd/sema/internal/scope"
)

const (
	// silence is how long an engine may be away before somebody who would wait
	// without limit gives up. One that was never there is given up at once.
	silence = time.Minute
	// firstLook is when it is looked whether the engine is there. Nothing is said of it.
	firstLook = 250 * time.Millisecond
	// lookTime is how long it may take to look.
	lookTime = 5 * time.Second
	// retryLook is when to look again at an engine that did not answer.
	retryLook = 10 * time.Second
	// shown is how many holders are named.
	shown = 5
)

// words are when somebody who waits hears how it stands, after the last time. The
// last goes on. Each look is as large as the line.
var words = []time.Duration{2 * time.Second, 8 * time.Second, 20 * time.Second, 30 * time.Second, time.Minute}

// A look is what was seen of the line.
type look struct {
	standing scope.Standing
	err      error
}

// acquire waits, and says how it stands.
func (w *wrapper) acquire(ctx context.Context, s scope.Semaphore) (scope.Hold, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type answer struct {
		hold scope.Hold
		err  error
	}
	answers, looks := make(chan answer, 1), make(chan look, 1)
	go func() {
		hold, err := s.Acquire(ctx, w.Weight)
		answers <- answer{hold, err}
	}()
	started, word := time.Now(), 0
	next := time.NewTimer(firstLook)
	defer next.Stop()
	var away time.Time // since when
	seen := false
	for {
		select {
		case a := <-answers:
			if ended := context.Cause(ctx); ended != nil && a.err == nil {
				a.hold.Release(context.Background())
				return nil, ended
			}
			return a.hold, a.err
		case sig := <-w.signals:
			cancel(&Exit{codeOf(sig), nil})
		case <-next.C:
			go func() { looks <- lookAt(ctx, s) }()
		case l := <-looks:
			early := words[0] - time.Since(started)
			switch {
			case early > 0:
				seen = l.err == nil
				next.Reset(early)
			case l.err == nil:
				away, seen = time.Time{}, true
				if w.Want.Wait != 0 { // or else it waits for the store alone, and that was said
					w.Say("%s", describe(l.standing, time.Since(started)))
				}
				word = min(word+1, len(words)-1)
				next.Reset(jittered(words[word]))
			case !errors.Is(l.err, sema.ErrUnavailable): // it is gone, or cannot be looked at
				next.Reset(words[len(words)-1])
			case away.IsZero():
				away = time.Now()
				fallthrough
			default:
				if !seen || time.Since(away) >= silence {
					cancel(l.err)
					break
				}
				w.Say("still waiting for %q, but the engine does not answer: %v", w.Want.Name, l.err)
				next.Reset(retryLook)
			}
		}
	}
}

func lookAt(ctx context.Context, s scope.Semaphore) look {
	ctx, cancel := context.WithTimeoutCause(ctx, lookTime, sema.ErrUnavailable)
	defer cancel()
	standing, err := s.Standing(ctx)
	if err != nil && context.Cause(ctx) == sema.ErrUnavailable {
		err = sema.ErrUnavailable
	}
	return look{standing, err}
}

func jittered(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5+1) }

// describe returns the notice of a waiter: its place, and a line for each holder.
func describe(s scope.Standing, waited time.Duration) printable.Lines {
	var b strings.Builder
	fmt.Fprintf(&b, "waiting for %q for %v", s.Name, waited.Round(time.Second))
	switch {
	case s.Position > 0 && s.AtMost:
		fmt.Fprintf(&b, ", place %d or better of %d in line", s.Position, s.Waiting)
	case s.Position > 0:
		fmt.Fprintf(&b, ", place %d of %d in line", s.Position, s.Waiting)
	}
	fmt.Fprintf(&b, "; %d of %d permits are held", s.InUse, s.Effective)
	if s.InUse == 0 && s.Effective > 0 && s.Position == 1 {
		b.WriteString(" (an engine that was just started grants none for a TTL, since it may have forgotten who holds some)")
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
	if p.PID != 0 {
		parts = append(parts, fmt.Sprintf("process %d", p.PID))
	}
	if len(parts) == 0 {
		parts = append(parts, "an unknown process")
	}
	if p.Weight != 1 {
		parts = append(parts, fmt.Sprintf("%d permits", p.Weight))
	}
	if !p.Since.IsZero() {
		parts = append(parts, fmt.Sprintf("for %v", p.For().Round(time.Second)))
	}
	text := strings.Join(parts, ", ")
	if p.About != "" {
		text += ": " + printable.Line(p.About)
	}
	return printable.Fit(text, holderColumns)
}

// codeOf is the exit code of who was ended by a signal.
func codeOf(sig os.Signal) int { return codeSignal + numberOf(sig) }
