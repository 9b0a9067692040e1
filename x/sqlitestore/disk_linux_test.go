package sqlitestore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
)

// TestADiskThatIsReallyFullIsSurvived needs the right to mount.
func TestADiskThatIsReallyFullIsSurvived(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	err := syscall.Mount("tmpfs", directory, "tmpfs", 0, "size=1m")
	if errors.Is(err, syscall.EPERM) {
		t.Skipf("mount: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Unmount(directory, syscall.MNT_DETACH) })
	path, filler := filepath.Join(directory, "fleet.db"), filepath.Join(directory, "filler")
	store := openAt(t, path, Options{})
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1 << 20})

	held := map[protocol.Seq]bool{}
	ticket := protocol.Ticket(0)
	for round := range 4 {
		if err := os.WriteFile(filler, make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("the disk is not full: %v", err)
		}
		var b protocol.Batch
		var failure error
		for failure == nil { // there may be room in what is already theirs
			ticket++
			b = s.Next(sessiontest.Acquire(ticket, 1))
			r, err := store.Apply(ctx, "a", b)
			failure = err
			for _, f := range s.Hear(r).Fates {
				held[f.Lease] = true
			}
		}
		if text := failure.Error(); !strings.Contains(text, "full") || !strings.Contains(text, path) || !strings.Contains(text, "make room") {
			t.Errorf("round %d: %v", round, failure)
		}
		if _, err := store.Apply(ctx, "a", b); err == nil {
			t.Error("there is no room, and it was done")
		}
		wantSame(t, store, held)

		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		for !roomy(t, directory) { // a child that is just being started may have the filler open
			time.Sleep(time.Millisecond)
		}
		r, err := store.Apply(ctx, "a", b)
		if err != nil || r.Verdict != protocol.Heard {
			t.Fatalf("round %d, when there is room again: %v, verdict %d", round, err, r.Verdict)
		}
		for _, f := range s.Hear(r).Fates {
			held[f.Lease] = true
		}
		wantSame(t, store, held)
	}
}

// roomy reports whether half of a disk is free.
func roomy(t *testing.T, directory string) bool {
	var about syscall.Statfs_t
	if err := syscall.Statfs(directory, &about); err != nil {
		t.Fatal(err)
	}
	return about.Bfree > about.Blocks/2
}

// wantSame fails unless just these leases are out.
func wantSame(t *testing.T, store *Store, want map[protocol.Seq]bool) {
	t.Helper()
	got, _ := sessiontest.Held(t, store, "a")
	if len(got) != len(want) {
		t.Errorf("%d leases are out, want %d", len(got), len(want))
	}
	for _, seq := range got {
		if !want[seq] {
			t.Errorf("lease %d is out", seq)
		}
	}
}
