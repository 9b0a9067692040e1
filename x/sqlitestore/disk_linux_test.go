package sqlitestore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
)

// newDisk mounts a tmpfs of the given size. It needs the permission to mount.
func newDisk(t *testing.T, size string) (directory string) {
	t.Helper()
	directory = t.TempDir()
	err := syscall.Mount("tmpfs", directory, "tmpfs", 0, "size="+size)
	if errors.Is(err, syscall.EPERM) {
		t.Skipf("mount: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Unmount(directory, syscall.MNT_DETACH) })
	return directory
}

// TestDisk_IsNotFilledByTheLog writes more to the log than a small disk can hold, in one
// process and across restarts. The state is small, so no request must fail.
func TestDisk_IsNotFilledByTheLog(t *testing.T) {
	t.Parallel()
	for _, size := range []string{"512k", "1m", "3m"} {
		t.Run(size, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(newDisk(t, size), "fleet.db")
			for range 3 {
				store, err := Open(path, Options{Normal: true})
				if err != nil {
					t.Fatal(err)
				}
				s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 200})
				for ticket := range protocol.Ticket(400) {
					r, err := store.Apply(ctx, "a", s.Next(sessiontest.Acquire(ticket+1, 1)))
					if err != nil {
						t.Fatalf("acquire %d: %v", ticket, err)
					}
					s.Receive(r)
				}
				if err := store.Administer(ctx, "a", fleet.Command{Delete: true}); err != nil {
					t.Error(err)
				}
				if err := store.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestDisk_FullAcrossRestarts fills the disk with another file, and opens the store again
// before there is space.
func TestDisk_FullAcrossRestarts(t *testing.T) {
	t.Parallel()
	directory := newDisk(t, "3m")
	path, filler := filepath.Join(directory, "fleet.db"), filepath.Join(directory, "filler")
	open := func() *Store {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			store, err := Open(path, Options{Normal: true})
			if err == nil {
				return store
			}
			// A child of another test, between fork and exec, may have the files of the last
			// store open, whose space is needed for the same files again.
			if !errors.Is(err, fleet.FaultFull) || time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
	store := open()
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1 << 20})
	fillDisk(t, filler)
	b := fillStore(t, s)
	for range 3 {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
		store = open()
		_, err := store.Apply(ctx, "a", b)
		if !errors.Is(err, sema.ErrUnavailable) || !errors.Is(err, fleet.FaultFull) || !strings.Contains(err.Error(), "make room on the disk") {
			t.Errorf("after a restart on the full disk: %v", err)
		}
		if _, err := store.Inspect(ctx, "a"); err != nil {
			t.Errorf("the stored state cannot be read: %v", err)
		}
	}
	emptyDisk(t, filler)
	if r, err := store.Apply(ctx, "a", b); err != nil || r.Status != protocol.Applied {
		t.Errorf("with space again: %v, status %d", err, r.Status)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}

// fillDisk writes a file until the disk is full.
func fillDisk(t *testing.T, filler string) {
	t.Helper()
	if err := os.WriteFile(filler, make([]byte, 8<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
}

func emptyDisk(t *testing.T, filler string) {
	t.Helper()
	info, err := os.Stat(filler)
	if err != nil {
		t.Fatal(err)
	}
	room := freeBytes(t, filepath.Dir(filler)) + info.Size()
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for freeBytes(t, filepath.Dir(filler)) < room { // a child between fork and exec may have the filler open
		time.Sleep(time.Millisecond)
	}
}

// fillStore acquires permits until the disk is full, and returns the batch that
// failed.
func fillStore(t *testing.T, s *sessiontest.Session) protocol.Batch {
	t.Helper()
	for ticket := protocol.Ticket(0); ; ticket += bulk {
		b := s.Next(bulky(ticket)...)
		r, err := s.Store.Apply(ctx, "a", b)
		if err != nil {
			return b
		}
		s.Receive(r)
	}
}

// bulk is the number of acquires that bulky returns.
const bulk = 100

// bulky returns acquires that take much space, with tickets after the given one.
func bulky(after protocol.Ticket) (ops []protocol.Op) {
	for i := range protocol.Ticket(bulk) {
		ops = append(ops, protocol.Op{Verb: protocol.Acquire, Ticket: after + i + 1, Weight: 1, Details: &protocol.Details{Holder: strings.Repeat("m", 200)}})
	}
	return ops
}

func TestDisk_FullIsSurvived(t *testing.T) {
	t.Parallel()
	directory := newDisk(t, "1m")
	path, filler := filepath.Join(directory, "fleet.db"), filepath.Join(directory, "filler")
	store := openAt(t, path, Options{})
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1 << 20})

	held := map[protocol.Seq]bool{}
	ticket := protocol.Ticket(0)
	for round := range 4 {
		fillDisk(t, filler)
		var b protocol.Batch
		var failure error
		for failure == nil { // there may be space in blocks already allocated
			b = s.Next(bulky(ticket)...)
			ticket += bulk
			r, err := store.Apply(ctx, "a", b)
			failure = err
			for _, f := range s.Receive(r).Results {
				held[f.Lease] = true
			}
		}
		if text := failure.Error(); !strings.Contains(text, "full") || !strings.Contains(text, path) || !strings.Contains(text, "make room") {
			t.Errorf("round %d: %v", round, failure)
		}
		if _, err := store.Apply(ctx, "a", b); err == nil {
			t.Error("a batch was applied on a full disk")
		}
		wantSame(t, store, held)

		emptyDisk(t, filler)
		r, err := store.Apply(ctx, "a", b)
		if err != nil || r.Status != protocol.Applied {
			t.Fatalf("round %d, with space again: %v, status %d", round, err, r.Status)
		}
		for _, f := range s.Receive(r).Results {
			held[f.Lease] = true
		}
		wantSame(t, store, held)
	}
}

// freeBytes returns the number of free bytes on a disk.
func freeBytes(t *testing.T, directory string) int64 {
	t.Helper()
	var about syscall.Statfs_t
	if err := syscall.Statfs(directory, &about); err != nil {
		t.Fatal(err)
	}
	return int64(about.Bfree) * int64(about.Bsize)
}

// wantSame fails the test unless exactly these leases are held.
func wantSame(t *testing.T, store *Store, want map[protocol.Seq]bool) {
	t.Helper()
	got, _ := sessiontest.Held(t, store, "a")
	if len(got) != len(want) {
		t.Errorf("%d leases are held, want %d", len(got), len(want))
	}
	for _, seq := range got {
		if !want[seq] {
			t.Errorf("lease %d is held", seq)
		}
	}
}
