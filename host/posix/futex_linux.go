//go:build !386 && !arm && !mips && !mipsle

package posix

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema/host/internal/futex"
)

// pollInterval bounds a sleep that interrupt cannot end, and so the delay until the
// waiter notices.
const pollInterval = 5 * time.Millisecond

// block sleeps while the value is 0, until wake, interrupt or a spurious wake-up.
func (m *memory) block() error {
	if !m.pollOnly.Load() {
		err := futex.WaitEither(m.value, 0, &m.interrupted)
		if !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
		m.pollOnly.Store(true)
	}
	return futex.Wait(m.value, 0, pollInterval)
}

// wake wakes up to n sleeping threads, in any process.
func (m *memory) wake(n int) { futex.Wake(m.value, n) }

// interrupt makes the sleeping waiter of this process return from block. It accesses no
// mapped memory. The word that it does access is on the Go heap, where it does not
// move.
func (m *memory) interrupt() {
	atomic.StoreUint32(&m.interrupted, 1)
	futex.WakePrivate(&m.interrupted, 1)
}
