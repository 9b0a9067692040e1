package play

import (
	"context"
	"fmt"
	"time"

	"github.com/sema-go/sema/rate"
)

var rateLesson = Lesson{
	ID: "rate", Title: "Token bucket", Layout: "bucket",
	Teaches: "The permits of a rate return by time, and not by release. Tokens drip into a bucket; each request spends some. A full bucket admits a burst at once; afterwards the rate holds.",
	Choices: []Choice{
		{ID: "rate", Label: "Tokens per second", Least: 1, Most: 5, Default: "2"},
		{ID: "burst", Label: "Burst", Least: 1, Most: 8, Default: "4"},
		{ID: "refund", Label: "Refund", Default: "no", Options: []Option{{"no", "no"}, {"yes", "requests cost less than they took"}}},
	},
	Commands: []Command{
		{ID: "burst", Label: "Send a burst", With: []Choice{{ID: "requests", Label: "Requests", Least: 1, Most: 8, Default: "5"}}},
		{ID: "pause", Label: "Downstream: Retry-After 3 s"},
	},
	Code: code("lesson_rate.go"),
	run:  runRate,
}

func runRate(s *Stage, set Settings) {
	// code:
	api := rate.New(set.Int("rate"), time.Second, rate.Burst(set.Int("burst")))
	// end
	s.showGate("api", "api", set.Int("burst"))
	level := func() { s.send(Event{Kind: KindLevel, Gate: "api", N: api.Stats().Free}) }
	level()
	number := 0
	request := func(cost int64) {
		s.mu.Lock()
		number++
		name := fmt.Sprint("#", number)
		s.mu.Unlock()
		s.join(name, "request", func(ctx context.Context, w *Worker) {
			cost := min(cost, set.Int("burst"))
			ends := w.asks("api", cost)
			// code:
			permit, err := api.Acquire(ctx, cost)
			// end
			ends(err)
			level()
			if err != nil {
				return
			}
			w.releases("api", cost, "")
			// code+:
			if cost > 1 && set["refund"] == "yes" {
				w.sleep(400 * time.Millisecond)
				api.Settle(permit, 1) // it has cost 1 only: the rest is refunded exactly
			}
			// end
			if cost > 1 && set["refund"] == "yes" {
				s.note("%s took %d tokens and used 1: Settle refunds the rest at once.", w.Name, cost)
				level()
			}
		})
	}
	s.run(func() {
		for s.sleep(200 * time.Millisecond) {
			level()
		}
	})
	s.run(func() {
		s.note("The bucket is full: the first %d tokens are spent at once.", set.Int("burst"))
		for s.ctx.Err() == nil {
			for range 6 {
				request(1)
			}
			for i := range 8 {
				if !s.sleep(s.between(500*time.Millisecond, 900*time.Millisecond)) {
					return
				}
				if i == 4 {
					request(3)
				} else {
					request(1)
				}
			}
			s.sleep(3 * time.Second)
			s.note("Six requests at once. What the bucket holds is spent now, the rest waits in order of arrival: one token every %s.", seconds(time.Second/time.Duration(set.Int("rate"))))
		}
	})
	s.commands["burst"] = func(with Settings) error {
		if waiters := api.Stats().Waiters; waiters > 20 {
			return fmt.Errorf("send a burst: %d requests are waiting", waiters)
		}
		for range with.Int("requests") {
			request(1)
		}
		return nil
	}
	s.commands["pause"] = func(Settings) error {
		api.PauseUntil(time.Now().Add(3 * time.Second))
		s.note("PauseUntil: the downstream has replied Retry-After, so nothing is granted for 3 s. Waiters keep their order.")
		return nil
	}
	s.watchWaits(4*time.Second, func(w *Worker, waited time.Duration) string {
		return fmt.Sprintf("%s has waited %s. With sema.MaxWait it would be rejected, and Delay computes the Retry-After.", w.Name, seconds(waited))
	})
}
