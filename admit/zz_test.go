package admit_test

import (
	"context"
	"testing"
	"time"

	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/wfq"
)

func BenchmarkAdmit(b *testing.B) {
	all := admit.Config{Queue: wfq.New(100), MaxWait: time.Second, Rate: rate.New(1e9, time.Second), Breaker: admit.NewBreaker(admit.BreakerConfig{SlowCall: time.Second}), Limit: &admit.AIMD{Max: 200}}
	run := func(name string, c admit.Config) {
		b.Run(name, func(b *testing.B) {
			k := admit.New(c)
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				a, err := k.Admit(ctx, admit.Request{})
				if err != nil {
					b.Fatal(err)
				}
				a.Done(admit.OK)
			}
		})
	}
	run("all", all)
	run("queue", admit.Config{Queue: all.Queue})
	run("breaker", admit.Config{Breaker: all.Breaker})
	run("rate", admit.Config{Rate: all.Rate})
	run("limit", admit.Config{Queue: all.Queue, Limit: all.Limit})
	b.Run("clock", func(b *testing.B) {
		e := time.Now()
		for b.Loop() {
			_ = time.Since(e)
		}
	})
	b.Run("shed", func(b *testing.B) {
		c := all
		c.Queue = wfq.New(1)
		k := admit.New(c)
		a, _ := k.Admit(b.Context(), admit.Request{})
		defer a.Done(admit.OK)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := k.TryAdmit(b.Context(), admit.Request{}); err == nil {
				b.Fatal()
			}
		}
	})
}
