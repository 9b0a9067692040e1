//go:build !386 && !arm && !mips && !mipsle

package posix

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema/host/internal/futex"
)

// slice is how long the sleeper sleeps at most where stir cannot wake it, and
// so how late it may notice.
const slice = 5 * time.Millisecond

// block sleeps while the value is 0 and nobody stirs, or shorter.
func (m *memory) block() error {
	if !m.slices.Load() {
		err := futex.WaitEither(m.value, 0, &m.nudge)
		if !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
		m.slices.Store(true)
	}
	return futex.Wait(m.value, 0, slice)
}

// wake wakes up to n sleepers, in whatever process they are.
func (m *memory) wake(n int) { futex.Wake(m.value, n) }

// stir makes the sleeper of this process look up. It touches no mapped memory,
// and the word it does touch does not move: the sleeper's address is on the
// Go heap.
func (m *memory) stir() {
	atomic.StoreUint32(&m.nudge, 1)
	futex.WakePrivate(&m.nudge, 1)
}
