package runner

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/scope"
)

// A change is a change of the state of the command.
type change struct {
	ended bool
	code  int       // if it has ended: its exit code, as a shell reports it
	by    os.Signal // the signal that stopped it; nil if none did
}

// supervise passes signals on to the command, and ends it when the permits are lost.
func (w *wrapper) supervise(c *child, hold scope.Hold) error {
	gone := hold.Lost()
	var kill <-chan time.Time
	var ending time.Time // when the command is to be killed
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
			w.Say("%v; ending the command", why)
			c.terminate()
			kill = time.After(time.Until(ending))
		case <-kill:
			kill = nil
			w.Say("the command did not end in time, and is killed")
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
				if why = hold.Err(); why != nil { // the loss was not noticed yet
					c.kill() // processes that it has started
					return &exit.Error{Code: exit.Lost, Err: why}
				}
				return exitOf(now.code)
			}
		}
	}
}

// A lostWhileRunning is the error of a command that was ended because the lease was
// lost. The reason was printed before.
type lostWhileRunning struct {
	code int
	why  error
}

func (l lostWhileRunning) Error() string {
	return fmt.Sprintf("the lease was lost, and the command has ended with code %d", l.code)
}

func (l lostWhileRunning) Unwrap() error { return l.why }

// Hint returns nothing: the command has ended, so that there is nothing to stop.
func (lostWhileRunning) Hint() string { return "" }

func exitOf(code int) error {
	if code == 0 {
		return nil
	}
	return &exit.Error{Code: code}
}

// deadline returns when a command whose permits are lost is killed: before another
// holder is admitted.
func (w *wrapper) deadline(hold scope.Hold) time.Time {
	by := hold.Deadline()
	if w.KillAfter > 0 {
		if wanted := time.Now().Add(w.KillAfter); wanted.Before(by) {
			return wanted
		}
	}
	return by
}

// pass passes a signal on to the command's group. Without permits the command is not
// continued.
func (w *wrapper) pass(c *child, hold scope.Hold, sig os.Signal) {
	if isContinue(sig) && hold.Err() != nil {
		return
	}
	c.signal(sig)
}

// stopped handles a command that was stopped: this process stops as well, or the shell
// would not notice.
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
		w.Say("stopped; the permit is lost if it does not go on within %v", left.Round(time.Second))
	}
	c.takeTerminal()
	c.stopSelf()
	if hold.Err() == nil { // by the clock
		c.giveTerminalBack()
		c.resume()
	}
}
