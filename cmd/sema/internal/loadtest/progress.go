package loadtest

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/charmbracelet/x/term"

	"github.com/sema-go/sema/cmd/sema/internal/figure"
)

// A progress shows the progress of the measurement: a bar on a terminal, or else one line of text.
type progress struct {
	to       io.Writer
	terminal bool
	settings settings
}

func newProgress(to io.Writer, s settings) *progress {
	p := &progress{to: to, settings: s}
	if f, ok := to.(*os.File); ok {
		p.terminal = term.IsTerminal(f.Fd()) && os.Getenv("TERM") != "dumb"
	}
	return p
}

// redraw is the interval between two drawings of the bar.
const redraw = 200 * time.Millisecond

// follow shows the progress until ctx ends.
func (p *progress) follow(ctx context.Context, start time.Time, pairs, failures *atomic.Int64) {
	if !p.terminal {
		fmt.Fprintf(p.to, "measuring for %v …\n", p.settings.duration)
		<-ctx.Done()
		return
	}
	tick := time.NewTicker(redraw)
	defer tick.Stop()
	for {
		p.draw(time.Since(start), pairs.Load(), failures.Load())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// draw draws the bar in at most 80 columns.
func (p *progress) draw(passed time.Duration, pairs, failures int64) {
	const width = 30
	part := min(1, passed.Seconds()/p.settings.duration.Seconds())
	filled, rest := figure.Bar(part, width)
	line := fmt.Sprintf("%s%s %v of %v  %s pairs/s", filled, strings.Repeat("·", rest), passed.Truncate(time.Second), p.settings.duration, figure.Grouped(int64(float64(pairs)/max(passed.Seconds(), 1e-3))))
	if failures > 0 {
		line += fmt.Sprintf("  %s errors", figure.Grouped(failures))
	}
	fmt.Fprintf(p.to, "\r\x1b[K%s", line)
}

// end erases the bar.
func (p *progress) end() {
	if p.terminal {
		fmt.Fprint(p.to, "\r\x1b[K")
	}
}
