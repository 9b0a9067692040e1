package desk

import (
	"context"
	"errors"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// wait says what is wished, if that is not said yet, and waits for what becomes of
// the visit's ticket.
func (v *visit) wait(ctx context.Context, r Request, wishes ...protocol.Op) (Lease, error) {
	start := time.Now()
	switch result, err := v.await(ctx, r.Wait, wishes); {
	case err == nil:
		return v.served(r, result, start)
	case err == errOver:
		why := sema.ErrTimeout
		if r.Wait == 0 {
			why = sema.ErrFull
		}
		err = v.refused(r, why, start)
		if r.Key != "" {
			v.giveUp()
		} else {
			v.abandon(r)
		}
		return Lease{}, err
	case errors.Is(err, sema.ErrLost): // and its ticket with it
		return Lease{}, err
	default:
		v.abandon(r)
		return Lease{}, err
	}
}

// errOver is when somebody has waited for as long as it would.
var errOver = errors.New("the wait is over")

// await stands in line until there is a result.
func (v *visit) await(ctx context.Context, limit time.Duration, wishes []protocol.Op) (protocol.Result, error) {
	d := v.desk
	d.stand(v)
	defer d.leave(v) // before the session is anybody else's
	if limit == 0 {  // the first reply decides a try
		limit = patience
	}
	over := time.NewTimer(limit)
	defer over.Stop()
	for {
		results, err := v.speak(ctx, wishes)
		if err != nil {
			return protocol.Result{}, err
		}
		wishes = nil
		for _, f := range results {
			if f.Ticket == v.ticket && f.Kind != protocol.Revoked {
				return f, nil
			}
		}
		sign := jittered(min(v.ttl/3, longestSilence))
		if v.foreign {
			sign = min(sign, jittered(deafLook))
		}
		if v.next > 0 {
			sign = min(sign, v.next)
		}
		select {
		case <-v.news:
		case <-time.After(sign):
		case <-over.C:
			return protocol.Result{}, errOver
		case <-ctx.Done():
			return protocol.Result{}, context.Cause(ctx)
		case <-d.life.Done():
			return protocol.Result{}, d.closed("acquire", v.semaphore)
		}
	}
}

// speak is say for who is the only one to know the visit, but for those who come
// too late for an earlier lease.
func (v *visit) speak(ctx context.Context, ops []protocol.Op) ([]protocol.Result, error) {
	if err := v.enter(ctx); err != nil {
		return nil, err
	}
	defer v.exit()
	return v.say(ctx, ops...)
}

// served is the end of a wait.
func (v *visit) served(r Request, f protocol.Result, start time.Time) (Lease, error) {
	d := v.desk
	switch {
	case f.Kind == protocol.Granted && v.config.Kind == protocol.Rate:
		d.park(v) // it is spent, and comes back by time alone
		return Lease{Semaphore: v.semaphore, Weight: f.Weight, InUse: v.inUse, Capacity: v.config.Capacity, Window: v.window()}, nil
	case f.Kind == protocol.Granted:
		v.lease, v.weight, v.fence = f.Lease, f.Weight, f.Fence
		lease := v.lent()
		d.remember(v)
		d.wake(v.semaphore, wokenByGrant) // it may not be the only one
		return lease, nil
	}
	err := v.refused(r, f.Kind.Err(), start)
	d.park(v)
	return Lease{}, err
}

func (v *visit) refused(r Request, why error, start time.Time) error {
	e := &sema.Error{Op: "acquire", Name: v.semaphore, Weight: r.Weight, Capacity: v.config.Capacity, InUse: v.inUse, Err: why}
	if protocol.MayChange(why) {
		e.After = v.decided
	}
	if errors.Is(why, sema.ErrTimeout) {
		e.Detail = time.Since(start).Round(time.Millisecond).String()
	}
	if e.After > 0 && (errors.Is(why, sema.ErrUnavailable) || v.inUse == 0) {
		e.Detail = "the store has restarted and does not know yet what is held"
	}
	if e.After > 0 {
		v.desk.Poll(v.semaphore, v.ttl)
	}
	if v.config.Kind == protocol.Rate {
		return &RateError{e, v.window()}
	}
	return e
}

// A RateError is a rejection by a rate, whose permits return Window after they were
// granted.
type RateError struct {
	Rejection *sema.Error
	Window    time.Duration
}

func (e *RateError) Error() string { return e.Rejection.Error() }
func (e *RateError) Unwrap() error { return e.Rejection }

func (v *visit) window() time.Duration { return time.Duration(v.config.Window) * time.Microsecond }

// abandon takes the ticket of somebody back who has gone, with what was granted
// meanwhile. One with a key may come again, and has its place for as long as its
// session lives.
func (v *visit) abandon(r Request) {
	if r.Key != "" {
		return
	}
	v.finally(protocol.Op{Verb: protocol.Cancel, Ticket: v.ticket})
}

// longestSilence is how late a word of the engine's that was lost may be made up
// for, however long a session would live.
const longestSilence = 5 * time.Second

// deafLook is how often somebody looks who is not told.
const deafLook = 250 * time.Millisecond
