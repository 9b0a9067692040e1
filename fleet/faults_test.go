package fleet_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
)

func TestAClosedClientDoesNotLendThoughItFailedOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, line := join(t, memstore.New())
		s := semaphore(t, c, of(5, fleet.FailOpen(2)))
		line.cut.Store(true)
		p := mustAcquire(t, s, 2)
		waiting := make(chan error, 1)
		go func() { _, err := s.Acquire(context.Background(), 1); waiting <- err }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := c.Close(ctx); err == nil {
			t.Error("2 permits are out, and Close says nothing")
		}
		select {
		case err := <-waiting:
			wantErr(t, err, sema.ErrClosed)
		case <-time.After(10 * time.Second):
			t.Error("who waited is not refused")
		}
		p.Release()
		if _, err := s.Acquire(context.Background(), 1); !errors.Is(err, sema.ErrClosed) {
			t.Errorf("a closed client lends: %v", err)
		}
	})
}

// A tired store takes a millisecond for each batch, or open, beyond a thousand, so that a loop ends.
type tired struct {
	fleet.Store
	calls atomic.Int64
}

func (s *tired) call() {
	if s.calls.Add(1) > 1000 {
		time.Sleep(time.Millisecond)
	}
}

func (s *tired) Open(ctx context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	s.call()
	return s.Store.Open(ctx, name, c, by)
}

func (s *tired) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	s.call()
	return s.Store.Apply(ctx, name, b)
}

func TestAPooledRateThatFailedOpenDoesNotLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		other, _ := join(t, store)
		mustAcquire(t, semaphore(t, other, of(5, fleet.Rate(time.Second))), 1)
		calls := &tired{Store: store}
		c, line := join(t, calls)
		s := semaphore(t, c, of(5, fleet.ModePooled, fleet.FailOpen(2)))
		line.cut.Store(true)
		mustAcquire(t, s, 1).Release()
		line.cut.Store(false)
		time.Sleep(30 * time.Second)
		if n := calls.calls.Load(); n > 100 {
			t.Errorf("%d sessions were opened", n)
		}
	})
}

// A slow context takes a while to say that it has no deadline: a caller who is preempted there.
type slow struct{ context.Context }

func (slow) Deadline() (time.Time, bool) { time.Sleep(time.Minute); return time.Time{}, false }

func TestAnAcquireMayRaceFailingOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, line := join(t, memstore.New())
		s := semaphore(t, c, of(5, sema.MaxWait(time.Hour), fleet.FailOpen(2)))
		line.cut.Store(true)
		got := make(chan error, 1)
		go func() { _, err := s.Acquire(slow{t.Context()}, 1); got <- err }()
		mustAcquire(t, s, 1).Release() // fails open after 15 s
		wantErr(t, <-got, nil)         // 2 are free at the local limit
	})
}

func TestAFailureLongAgoIsNoSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, line := join(t, memstore.New())
		s := semaphore(t, c, of(5, fleet.FailOpen(2)))
		loseOne := func() {
			line.cut.Store(true)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			s.Acquire(ctx, 1)
			time.Sleep(5 * time.Second)
			line.cut.Store(false)
		}
		loseOne()
		time.Sleep(time.Hour) // the engine is there, and is not asked
		loseOne()
		if s.Stats().FailedOpen {
			t.Error("one lost message made it fail open")
		}
	})
}

type otherVersion struct{ fleet.Store }

func (otherVersion) Open(context.Context, string, protocol.Config, protocol.Opener) (protocol.Session, protocol.Config, error) {
	return 0, protocol.Config{}, protocol.ErrVersion
}

func TestARefusalIsNoSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := join(t, otherVersion{memstore.New()})
		s := semaphore(t, c, of(5, fleet.FailOpen(2)))
		for range 30 {
			_, err := s.Acquire(t.Context(), 1)
			wantErr(t, err, protocol.ErrVersion)
			time.Sleep(time.Second)
		}
	})
}

func TestMaxWaitBoundsBothWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, line := join(t, memstore.New())
		s := semaphore(t, c, of(5, sema.MaxWait(20*time.Second), fleet.FailOpen(1)))
		line.cut.Store(true)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				start := time.Now()
				if _, err := s.Acquire(context.Background(), 1); err != nil && time.Since(start) > 21*time.Second {
					t.Errorf("MaxWait is 20 s, it waited %v: %v", time.Since(start), err)
				}
			})
		}
		wg.Wait()
	})
}

// A patient link gives up with its context.
type patient struct{ fleet.Store }

func (p patient) Open(ctx context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	select {
	case <-time.After(50 * time.Millisecond):
		return p.Store.Open(ctx, name, c, by)
	case <-ctx.Done():
		return 0, protocol.Config{}, context.Cause(ctx)
	}
}

func TestAnEngineThatAnswersInTimeIsNotSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := join(t, patient{memstore.New()})
		s := semaphore(t, c, of(5, fleet.FailOpen(2), fleet.FailOpenAfter(time.Second)))
		mustAcquire(t, s, 1)
		if s.Stats().FailedOpen {
			t.Error("every answer comes after 50 ms, and it failed open")
		}
	})
}

func TestWhoWaitsAsideIsSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, line := join(t, memstore.New())
		s := semaphore(t, c, of(5, fleet.FailOpen(1)))
		line.cut.Store(true)
		p := mustAcquire(t, s, 1)
		go s.Acquire(t.Context(), 1)
		synctest.Wait()
		if n := s.Stats().Waiters; n != 1 {
			t.Errorf("%d wait, by Stats", n)
		}
		p.Release()
	})
}

func TestCloseSaysThatNothingWasReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, line := join(t, store)
		mustAcquire(t, semaphore(t, c, of(5)), 2)
		line.cut.Store(true)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err := c.Close(ctx, fleet.CloseRelease)
		if taken, _ := inUse(t, store); err == nil && taken > 0 {
			t.Errorf("Close says all was released, and the engine has %d taken", taken)
		}
	})
}

func TestCloseTellsOfReleasesOfALostSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, line := join(t, store)
		s := semaphore(t, c, of(5))
		p := mustAcquire(t, s, 2)
		line.cut.Store(true)
		p.Release()
		err := c.Close(context.Background())
		if taken, _ := inUse(t, store); err == nil && taken > 0 {
			t.Errorf("Close says all was heard; the engine has %d taken, and Moot is %d", taken, s.Stats().Unconfirmed)
		}
	})
}

func TestAnObserverThatBlocksIsNotPiledUpOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := join(t, memstore.New())
		block := make(chan bool)
		s := semaphore(t, c, of(4, sema.Observe(sema.ObserverFunc(func(e sema.Event) {
			if e.Kind == sema.EventRenewed {
				<-block
			}
		}))))
		p := mustAcquire(t, s, 1)
		time.Sleep(time.Hour)
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		if n := strings.Count(string(stacks), "fleet.(*Semaphore).tell("); n > 10 {
			t.Errorf("%d goroutines tell after an hour", n)
		}
		close(block)
		p.Release()
	})
}

func TestATryDoesNotWaitForAnEngineThatIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, line := join(t, memstore.New())
		s := semaphore(t, c, of(5))
		line.cut.Store(true)
		start := time.Now()
		if _, err := s.TryAcquire(context.Background(), 1); time.Since(start) > 20*time.Second {
			t.Errorf("a try took %v: %v", time.Since(start), err)
		}
	})
}

func TestSmallLies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, line := join(t, memstore.New())
		s := semaphore(t, c, of(4, fleet.Rate(time.Hour)))
		if _, err := c.Semaphore("db", 4, fleet.Rate(time.Hour), fleet.TTL(15*time.Second)); err != nil {
			t.Error("15 s is what TTL is unless told, and is refused as another TTL")
		}
		p := mustAcquire(t, s, 1)
		line.cut.Store(true)
		time.Sleep(time.Minute)
		if l, _ := fleet.LeaseOf(p); p.Err() == nil && l.Left == 0 {
			t.Error("what is of a Rate is never lost, and has nothing Left")
		}
	})
}
