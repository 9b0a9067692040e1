//go:build linux && !sema_portable

package host

import (
	"testing"
	"time"
)

// TestFile_AdmitWaitsForLaterCallers checks that a caller waits for callers with higher
// tickets: they may have counted before this one was visible.
func TestFile_AdmitWaitsForLaterCallers(t *testing.T) {
	t.Parallel()
	f := openHere(t, 1).file
	fd := openAsOther(t, f)
	lockAsOther(t, fd, placeLocks) // another process has the first place
	if err := reserve(f.fd, placesAt, 4*placeSize); err != nil {
		t.Fatal(err)
	}
	other := &f.places[0]
	join := func(ticket, otherTicket uint64, decide queueLength) bool {
		other.beat.Store(int64(clock()))
		other.queue.Store(uint64(queueLengthOf(0, otherTicket)))
		f.raiseHigh(1)
		if otherTicket > ticket {
			decider := time.AfterFunc(20*time.Millisecond, func() { other.queue.Store(uint64(decide)) })
			defer decider.Stop()
		}
		f.queue.mu.Lock()
		defer f.queue.mu.Unlock()
		admitted, err := f.admitLocked(ticket, 1)
		if err != nil {
			t.Fatal(err)
		}
		f.publishFirstLocked()
		return admitted
	}
	if join(5, 4, 0) {
		t.Error("admitted although an earlier caller joins")
	}
	if join(5, 6, queueLengthOf(1, 0)) {
		t.Error("admitted although a later caller was admitted meanwhile")
	}
	if !join(5, 6, 0) {
		t.Error("rejected although the later caller was rejected")
	}
}
