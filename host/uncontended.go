package host

import (
	"context"
	"time"

	"github.com/sema-go/sema"
)

// acquireFree acquires one permit if no caller waits and the bitmap shows a free slot. It
// does what take and newLease do, without allocating, and with one reading of the clock. If
// it fails, the caller takes the general path, which returns every error. A monitored
// semaphore has the general path alone.
func (s *Semaphore) acquireFree(ctx context.Context) (sema.Permit, bool) {
	f := s.file
	if s.monitor != nil || ctx == nil || ctx.Err() != nil || !f.ref() {
		return sema.Permit{}, false
	}
	now := time.Now()
	if s.closed.Load() || !f.pathIsChecked(now) {
		f.unref()
		return sema.Permit{}, false
	}
	r, ok := f.claimFree(now)
	if !ok {
		f.unref()
		return sema.Permit{}, false
	}
	s.tally.Acquired()
	l := s.freeLease()
	l.hold(now, append(l.single[:0], r))
	return l.issuer.Permit(1), true
}

// claimFree claims and records one slot, by the rules of claim. While slots beyond the
// capacity may be held, it fails. If it has had a slot for a moment, it wakes the first
// waiter, which may have found that slot held.
func (f *file) claimFree(now time.Time) (r run, ok bool) {
	if f.queue.length.Load() > 0 {
		return run{}, false
	}
	intact := f.touch(func() {
		c := config(f.head.config.Load())
		if f.high() > 0 || c&unsettled != 0 || c.rejects(1) != short || !f.hasMagic() {
			return
		}
		r, ok, _ = f.lockHinted(c)
		if ok && f.onClaim != nil {
			f.onClaim()
		}
		if ok && config(f.head.config.Load()) == c && f.hasMagic() {
			f.writeRecordsTouching([]run{r}, now, false)
			return
		}
		if ok {
			ok = false
			f.unlockSlots([]run{r})
			f.wakeFirst()
		}
	})
	if ok && !intact {
		f.unlockSlots([]run{r})
		return run{}, false
	}
	return r, ok
}

// hasMagic reports whether the file is intact as far as its first word shows. The caller
// is within touch.
func (f *file) hasMagic() bool { return f.head.magic.Load() == magic }
