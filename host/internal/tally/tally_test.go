package tally_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host/internal/tally"
)

func TestTally_Counts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c tally.Tally
		fail := func(err error, queued bool) { c.Failed(&sema.Error{Op: "acquire", Err: err}, queued) }
		c.Acquired()
		c.Queued()
		time.Sleep(time.Second)
		c.Queued()
		time.Sleep(time.Second)
		if got, want := c.Counts(), (sema.Counts{Acquired: 1, Waited: 2, WaitTime: 3 * time.Second}); got != want || c.Waiting() != 2 {
			t.Errorf("%+v and %d waiting, want %+v and 2", got, c.Waiting(), want)
		}
		c.Dequeued()
		c.Dequeued()
		time.Sleep(time.Second)
		c.Failed(context.Canceled, true)
		c.Failed(context.Canceled, false) // had ended already
		fail(sema.ErrTimeout, true)
		fail(sema.ErrFull, false)
		fail(sema.ErrDraining, true)
		fail(sema.ErrInvalid, false)
		fail(errors.New("damaged"), true)
		want := sema.Counts{Acquired: 1, Waited: 2, WaitTime: 3 * time.Second, Cancelled: 1, TimedOut: 1, Rejected: 2}
		if got := c.Counts(); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}
