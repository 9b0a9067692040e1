package fleet

import (
	"sync"
	"time"

	"github.com/sema-go/sema"
)

// A spentLease is a permit of the local limit of a rate: it returns when a window has passed.
// The permit of the local semaphore behind it is held until then, so that no window admits
// more than the limit.
type spentLease struct {
	of *failOpen

	mu      sync.Mutex  // guards what follows
	inner   sema.Permit // of the local semaphore; inert after the window
	settled bool        // or split
	expiry  time.Time
	timer   *time.Timer
}

// spend returns the lease of a permit that returns at a time.
func (f *failOpen) spend(inner sema.Permit, expiry time.Time) *spentLease {
	l := &spentLease{of: f, inner: inner, expiry: expiry}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(time.Until(expiry), l.expire)
	return l
}

func (l *spentLease) expire() {
	l.mu.Lock()
	inner := l.inner
	l.inner = sema.Permit{}
	l.mu.Unlock()
	inner.Release()
}

// Name returns the name of the fleet semaphore.
func (l *spentLease) Name() string { return l.of.settings.label }

// Release implements [sema.Lease]. There is nothing to release.
func (l *spentLease) Release() {}

// Split implements [sema.Permit.Split].
func (l *spentLease) Split(n int64) (first, rest sema.Lease, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, b := sema.Permit{}, sema.Permit{}
	if l.inner.Held() {
		if a, b, err = l.inner.Split(n); err != nil {
			return nil, nil, err
		}
	}
	l.timer.Stop()
	parts := [2]*spentLease{l.of.spend(a, l.expiry), l.of.spend(b, l.expiry)}
	for _, part := range parts {
		part.settled = l.settled
	}
	l.inner, l.settled = sema.Permit{}, true
	return parts[0], parts[1], nil
}

// settle corrects what the permit has cost, the first time.
func (l *spentLease) settle(weight, cost int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settled {
		return
	}
	l.settled = true
	switch {
	case cost > weight:
		l.of.charge(cost - weight)
	case !l.inner.Held() || cost == weight: // it has left the window, or there is nothing to correct
	case cost == 0:
		l.timer.Stop()
		l.inner.Release()
	default:
		kept, refund, err := l.inner.Split(cost)
		if err == nil {
			l.inner = kept
			refund.Release()
		}
	}
}

// charge takes permits of the local limit for a window, as soon as those that are queued
// have been granted theirs.
func (f *failOpen) charge(excess int64) {
	f.client.start(func() {
		p, err := f.local.Acquire(f.client.life, min(excess, f.settings.failOpen.limit))
		if err == nil {
			f.spend(p, time.Now().Add(f.window()))
		}
	})
}

// window returns the window of a rate, 0 if the semaphore is none.
func (f *failOpen) window() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return micros(f.windowLocked())
}

// delay returns the time after which n permits of the local limit are probably available.
func (f *failOpen) delay(n int64, window time.Duration) time.Duration {
	if n <= f.local.Stats().Free {
		return 0
	}
	return window
}

// pauseLocked begins or ends a pause of the local limit.
func (f *failOpen) pauseLocked(on bool) {
	switch {
	case f == nil:
	case on:
		f.local.Resize(0)
	default:
		f.local.Resize(f.settings.failOpen.limit)
	}
}
