package pgstore

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/pgtest"
)

// TestStore_ReportsAFullDisk fills up a disk that has only the tables. It needs the right
// to mount.
func TestStore_ReportsAFullDisk(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	disk := storetest.Directory(t, "postgres")
	err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=2m")
	if errors.Is(err, syscall.EPERM) {
		t.Skipf("mount: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
	chownToPostgres(t, disk)
	mustPsql(t, server, "CREATE TABLESPACE small LOCATION '"+disk+"'")
	store := openAt(t, server.URL()+"&default_tablespace=small", Options{})
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1 << 20})
	kept := s.Granted(1, sessiontest.Acquire(1, 1))

	var (
		batch   protocol.Batch
		failure error
	)
	for ticket := protocol.Ticket(2); failure == nil; {
		var ops []protocol.Op
		for range 200 {
			ops = append(ops, protocol.Op{Verb: protocol.Acquire, Ticket: ticket, Weight: 1, Details: &protocol.Details{Holder: strings.Repeat("m", 1000)}})
			ticket++
		}
		batch = s.Next(ops...)
		var r protocol.Reply
		r, failure = store.Apply(ctx, "a", batch)
		for _, f := range s.Receive(r).Results {
			kept = append(kept, f.Lease)
		}
	}
	wantUnavailable(t, "Apply", failure, "disk of the server is full", "make room")
	if codeOf(failure) != "53100" {
		t.Errorf("%v: the code of the server is lost", failure)
	}
	if leases, _ := sessiontest.Held(t, store, "a"); len(leases) != len(kept) {
		t.Errorf("%d leases, want %d: a batch that failed was applied in part", len(leases), len(kept))
	}
	if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	if r, err := store.Apply(ctx, "a", batch); err != nil || r.Status != protocol.Applied || len(r.Results) != 200 {
		t.Errorf("after the disk has space: %v, status %d, %d results", err, r.Status, len(r.Results))
	}
}
