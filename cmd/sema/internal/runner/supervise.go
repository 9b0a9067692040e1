package runner

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/scope"
)

// A change is news of the command.
type change struct {
	ended bool
	code  int       // it has ended with, as a shell has it
	by    os.Signal // it was stopped; nil if it goes on
}

// supervise passes on what concerns the command, until it has ended.
func (w *wrapper) supervise(c *child, hold scope.Hold) error {
	gone := hold.Lost()
	var kill <-chan time.Time
	var ending time.Time // when the command is to be killed
	var why error        // the permits are lost
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
				if why = hold.Err(); why != nil { // nobody has had the time to notice
					c.kill() // what it has left
					return &exit.Error{Code: exit.Lost, Err: why}
				}
				return exitOf(now.code)
			}
		}
	}
}

// A lostWhileRunning is the end of a command that was told to end. Why was said by
// then.
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

// deadline is when a command without permits is killed: before others are let in.
func (w *wrapper) deadline(hold scope.Hold) time.Time {
	by := hold.Deadline()
	if w.KillAfter > 0 {
		if told := time.Now().Add(w.KillAfter); told.Before(by) {
			return told
		}
	}
	return by
}

// pass passes a signal on to the command's group. It does not go on without
// permits.
func (w *wrapper) pass(c *child, hold scope.Hold, sig os.Signal) {
	if isContinue(sig) && hold.Err() != nil {
		return
	}
	c.signal(sig)
}

// stopped is when the command was: this process has to stop as well, or the shell
// would not notice.
func (w *wrapper) stopped(c *child, hold scope.Hold, by os.Signal) {
	if c.wantsTerminal(by) {
		c.giveTerminal()
		c.resume()
		return
	}
	if !c.terminal.there() {
		return // it goes on when whoever has stopped it says so
	}
	if left, expires := hold.Left(); expires {
		w.Say("stopped; the permit is lost if it does not go on within %v", left.Round(time.Second))
	}
	c.takeTerminal()
	c.stopSelf()
	if hold.Err() == nil { // by the clock, which has gone on
		c.giveTerminalBack()
		c.resume()
	}
}
