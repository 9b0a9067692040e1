package admit_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/wfq"
)

func TestController_ShutdownRejectsThoseThatWaitForARate(t *testing.T) {
	t.Parallel()
	// Without that, the server behind would wait for their handlers: as long as the rate takes.
	for name, configure := range map[string]func(*admit.Config, rate.Limiter){
		"rate":   func(c *admit.Config, l rate.Limiter) { c.Rate = l },
		"class":  func(c *admit.Config, l rate.Limiter) { c.RateOf = func(string) rate.Limiter { return l } },
		"budget": func(c *admit.Config, l rate.Limiter) { c.Budget = l },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				limiter := rate.New(1, time.Hour)
				config := admit.Config{Queue: wfq.New(1)}
				configure(&config, limiter)
				config.Logger = slog.New(slog.DiscardHandler)
				c := admit.New(config)
				first, err := c.Admit(t.Context(), admit.Request{Cost: 1})
				if err != nil {
					t.Fatal(err)
				}
				first.Done(admit.OK)
				waiting := make(chan error, 1)
				begun := time.Now()
				go func() {
					_, err := c.Admit(context.Background(), admit.Request{Cost: 1})
					waiting <- err
				}()
				time.Sleep(time.Minute)
				if err := c.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
				err = <-waiting
				if waited := time.Since(begun); waited != time.Minute || !errors.Is(err, sema.ErrDraining) || admit.RejectionOf(err) == nil {
					t.Errorf("%v after %v, want a rejection when the controller was shut down", err, waited)
				}
				c.Resume()
				if a, err := c.Admit(t.Context(), admit.Request{Cost: 1}); err != nil || time.Since(begun) != time.Hour {
					t.Errorf("%v after %v, want an admission when the first permit is available again", err, time.Since(begun))
				} else {
					a.Done(admit.OK)
				}
			})
		})
	}
}

func TestController_ShutdownDuringWaitsForARateLosesNothing(t *testing.T) {
	t.Parallel()
	// Requests wait for the rate all the time, so each permit that a rejection had taken would be
	// missing among those that are admitted.
	synctest.Test(t, func(t *testing.T) {
		const n, seconds = 10, 200
		limiter, q := rate.New(n, time.Second), wfq.New(4)
		c := admit.New(admit.Config{Queue: q, Rate: limiter, Logger: slog.New(slog.DiscardHandler)})
		random := rand.New(rand.NewPCG(1, 1))
		end := time.Now().Add(seconds * time.Second)
		var admitted, rejected atomic.Int64
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				ctx, cancel := context.WithDeadline(t.Context(), end)
				defer cancel()
				for ctx.Err() == nil {
					a, err := c.Admit(ctx, admit.Request{})
					if err == nil {
						admitted.Add(1)
						a.Done(admit.OK)
						continue
					}
					if errors.Is(err, sema.ErrDraining) {
						rejected.Add(1)
					}
					time.Sleep(time.Millisecond) // near the end, the rate rejects at once
				}
			})
		}
		for time.Now().Before(end) {
			time.Sleep(time.Duration(random.Int64N(int64(2 * time.Second))))
			if err := c.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			c.Resume()
		}
		all.Wait()
		if got := admitted.Load(); got < n*seconds-n || got > n*(seconds+1) || rejected.Load() < seconds {
			t.Errorf("%d of %d admitted, %d rejected", got, n*(seconds+1), rejected.Load())
		}
		if st := q.Stats(); st.InUse != 0 || st.Waiters != 0 || limiter.Stats().Waiters != 0 {
			t.Errorf("%d in use, %d waiting, %d at the rate", st.InUse, st.Waiters, limiter.Stats().Waiters)
		}
	})
}
