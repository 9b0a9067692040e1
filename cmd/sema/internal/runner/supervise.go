package runner

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/scope"
)

// A change is a change of the command's state.
type change struct {
	ended bool
	code  int       // if ended: the exit code, as a shell reports it
	by    os.Signal // the signal that stopped the command; nil if none did
}

// supervise passes signals on to the command, and ends it when the permits are lost.
func (w *wrapper) supervise(c *child, hold scope.Hold) error {
	gone := hold.Lost()
	var kill <-chan time.Time
	var ending time.Time // when the command will be killed
	var why error        // why the permits were lost
	for {
		select {
		case sig := <-w.signals:
			w.pass(c, hold, sig)
			if slices.Contains(endings, sig) && w.KillAfter > 0 && kill == nil {
				ending = time.Now().Add(w.KillAfter)
				kill = time.After(w.KillAfter)
			}
		case <-gone:
			gone = nil
			why = hold.Err()
			if by := w.deadline(hold); kill == nil || by.Before(ending) {
				ending = by
			}
			w.Printf("%v; ending the command", why)
			c.terminate()
			kill = time.After(time.Until(ending))
		case <-kill:
			kill = nil
			w.Printf("killing the command: it did not end in time")
			c.kill()
		case now := <-c.changes:
			switch {
			case !now.ended && now.by != nil:
				w.stopped(c, hold, now.by)
			case now.ended:
				c.takeTerminal()
				if why != nil {
					c.killRest(ending)
					return &exit.Error{Code: exit.Lost, Err: lostWhileRunning{now.code, why}}
				}
				if why = hold.Err(); why != nil { // the loss was not reported yet
					c.kill() // processes that the command has started
					return &exit.Error{Code: exit.Lost, Err: why}
				}
				return exitOf(now.code)
			}
		}
	}
}

// A lostWhileRunning is the error of a command that was ended because its lease was lost. The
// reason was printed before.
type lostWhileRunning struct {
	code int
	why  error
}

func (l lostWhileRunning) Error() string {
	return fmt.Sprintf("the lease was lost, and the command has ended with code %d", l.code)
}

func (l lostWhileRunning) Unwrap() error { return l.why }

// Hint returns "": the command has ended, so there is nothing to stop.
func (lostWhileRunning) Hint() string { return "" }

func exitOf(code int) error {
	if code == 0 {
		return nil
	}
	return &exit.Error{Code: code}
}

// deadline returns when a command that has lost its permits is killed: before another holder is
// admitted.
func (w *wrapper) deadline(hold scope.Hold) time.Time {
	by := hold.Deadline()
	if w.KillAfter > 0 {
		if wanted := time.Now().Add(w.KillAfter); wanted.Before(by) {
			return wanted
		}
	}
	return by
}

// pass passes a signal on to the command's group. It does not continue a command that has lost
// its permits.
func (w *wrapper) pass(c *child, hold scope.Hold, sig os.Signal) {
	if isContinue(sig) && hold.Err() != nil {
		return
	}
	c.signal(sig)
}

// stopped handles a command that was stopped. It stops this process as well, or the shell would
// not notice.
func (w *wrapper) stopped(c *child, hold scope.Hold, by os.Signal) {
	if c.wantsTerminal(by) {
		c.giveTerminal()
		c.resume()
		return
	}
	if !c.terminal.there() {
		return // the process that stopped it continues it
	}
	if left, expires := hold.Left(); expires {
		w.Printf("stopped; the permit is lost if the command is not continued within %v", left.Round(time.Second))
	}
	c.takeTerminal()
	c.stopSelf()
	if hold.Err() == nil { // checked by the clock
		c.restoreTerminal()
		c.resume()
	}
}
