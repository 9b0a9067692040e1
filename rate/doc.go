// Package rate provides a gate whose permits return by time: so many per period, with
// bursts.
//
//	mails := rate.New(100, time.Minute, rate.Burst(10), sema.Name("mails"))
//	…
//	if _, err := mails.Acquire(ctx, 1); err != nil { … } // waits in turn
//	if _, err := mails.TryAcquire(ctx, 1); err != nil {  // or not at all
//		w.Header().Set("Retry-After", …mails.Delay(1)…)
//	}
//
// A [Gate] is a token bucket: it holds up to burst permits, and n return in each period.
// Any period admits at most burst + n. With Burst(1) it paces: one permit every per/n.
// It is a [sema.Gate] like all others: contexts, weights, strict order of arrival, MaxWait,
// MaxWaiters, observers. Its permits are spent when they are granted: there is nothing to
// release, and they may be dropped.
//
// What it promises that golang.org/x/time/rate does not: a wait that is cancelled takes
// nothing and delays no other caller; [Gate.Settle] refunds a permit exactly; a heavy
// caller is not overtaken by light ones; a clock that steps back grants nothing extra.
//
// A rate bounds how often something starts. To bound how many run at once, use
// [sema.Semaphore], or both with [sema.AcquireAll]. For a rate that machines share, use the
// option Rate of package fleet.
package rate
