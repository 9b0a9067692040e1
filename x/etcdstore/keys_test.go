package etcdstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/etcdtest"
)

// TestKeys_AreReadable reads the keys as an operator would, with etcdctl.
func TestKeys_AreReadable(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	store := openAt(t, server, "app/")
	s := sessiontest.Begin(t, store, "jobs", protocol.Config{Capacity: 3})
	lease := s.Granted(1, sessiontest.Acquire(1, 2))[0]
	s.Send(sessiontest.Acquire(2, 2), sessiontest.Acquire(3, 1))
	sessiontest.Begin(t, store, "mails", protocol.Config{Kind: protocol.Rate, Capacity: 5, Window: sessiontest.TTL}).Granted(1, sessiontest.Acquire(1, 4))

	if got := server.Etcdctl("get", "--prefix", "--keys-only", "app/head/"); strings.Join(strings.Fields(got), " ") != "app/head/jobs app/head/mails" {
		t.Errorf("keys %q", got)
	}
	for name, want := range map[string]string{
		"jobs":  `"in_use":2,"leases":1,"waiting":2,"sessions":1,"changed":"`,
		"mails": `"in_use":4,"leases":0,"waiting":0,"sessions":1,"spent_until":`,
	} {
		got := server.Etcdctl("get", "--print-value-only", "app/head/"+name)
		kind := map[string]string{"jobs": `"data":1,"entry":3,"complete":3,"config":{"kind":"concurrency","capacity":3,`, "mails": `"config":{"kind":"rate","capacity":5,`}[name]
		if !strings.Contains(got, want) || !strings.Contains(got, kind) {
			t.Errorf("%s: %s", name, got)
		}
		var h head
		if err := json.Unmarshal([]byte(got), &h); err != nil || time.Since(h.Changed).Abs() > time.Minute {
			t.Errorf("%s was changed at %v, %v", name, h.Changed, err)
		}
	}
	// The last entry of a small semaphore has all of it.
	log := server.Etcdctl("get", "--prefix", "--print-value-only", "--order", "DESCEND", "--limit", "1", "app/log/jobs ")
	for _, want := range []string{
		fmt.Sprintf(`"instance":"instance of %s"`, t.Name()),
		fmt.Sprintf(`"leases":[{"seq":%d,"session":%d,"weight":2,`, lease, s.ID), `"details":"holder=\"for a test\""`,
		fmt.Sprintf(`"queue":[{"session":%d,"ticket":2,"weight":2,`, s.ID),
	} {
		if !strings.Contains(log, want) {
			t.Errorf("%s\nhas no %s", log, want)
		}
	}
}

// count returns the number of keys with a prefix, and of the bytes of their values.
func count(t *testing.T, s *Store, prefix string) (keys, bytes int) {
	t.Helper()
	client, err := s.connection.client(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r, err := client.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range r.Kvs {
		bytes += len(found.Value)
	}
	return len(r.Kvs), bytes
}

func TestLog_DoesNotGrowForEver(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	store := openAt(t, server, "")
	few, many := sessiontest.Begin(t, store, "few", protocol.Config{Capacity: 100}), sessiontest.Begin(t, store, "many", protocol.Config{Capacity: 100})
	var ops []protocol.Op
	for n := range protocol.Ticket(40) {
		ops = append(ops, sessiontest.Acquire(1000+n, 1))
	}
	many.Granted(40, ops...)
	for i := range protocol.Ticket(150) {
		for _, s := range []*sessiontest.Session{few, many} {
			s.Send(sessiontest.Release(s.Granted(1, sessiontest.Acquire(i+1, 1))[0]))
		}
		if i%15 == 0 { // at any time, all entries that are needed exist
			if _, err := openAt(t, server, "").Inspect(ctx, "many"); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, s := range []*sessiontest.Session{few, many} {
		keys, bytes := count(t, store, "sema/log/"+s.Name+" ")
		if keys > 150 || bytes > 150<<10 {
			t.Errorf("%q has %d entries of %d bytes", s.Name, keys, bytes)
		}
	}
	// Other processes can follow, from the beginning and from where they were.
	other := openAt(t, server, "")
	many.SendTo(other)
	many.Send(sessiontest.Acquire(1, 1))
	many.SendTo(other)
}

// TestEntry_MayBeLargerThanAValue writes more than fits into one value of etcd, in one
// batch and in all of the state, and reads it from another store.
func TestEntry_MayBeLargerThanAValue(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	store, other := openAt(t, server, ""), openAt(t, server, "")
	store.maxValue, other.maxValue = 20<<10, 30<<10
	s := sessiontest.Begin(t, store, "large", protocol.Config{Capacity: 5000})
	ticket := protocol.Ticket(0)
	for range 3 {
		var ops []protocol.Op
		for range 512 {
			ticket++
			op := sessiontest.Acquire(ticket, 1)
			var noise strings.Builder // which hardly compresses
			for i := range 10 {
				fmt.Fprintf(&noise, "%x", uint64(ticket)*0x9e3779b97f4a7c15*uint64(i+1))
			}
			op.Details = &protocol.Details{Holder: noise.String()}
			ops = append(ops, op)
		}
		s.Granted(512, ops...)
		s.SendTo(other)
	}
	if parts, _ := count(t, store, "sema/part/"); parts == 0 {
		t.Error("there are no parts: no entry was too large")
	}
	snapshot, err := other.Inspect(ctx, "large")
	if err != nil || len(snapshot.Leases) != 3*512 || len(snapshot.Leases[700].Details.Holder) < 100 {
		t.Fatalf("%d leases, %v", len(snapshot.Leases), err)
	}
	var ops []protocol.Op
	for _, l := range snapshot.Leases {
		ops = append(ops, sessiontest.Release(l.Seq))
	}
	s.SendTo(other, ops...)
	for range 40 {
		s.Send()
	}
	sessiontest.WantHeld(t, other, "large")
	if parts, _ := count(t, store, "sema/part/"); parts > 0 {
		t.Errorf("%d parts are left of entries that are removed", parts)
	}
}

func TestDelete_LeavesOnlyTheFloor(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	store, other, witness := openAt(t, server, ""), openAt(t, server, ""), openAt(t, server, "")
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1})
	lease := s.Granted(1, sessiontest.Acquire(1, 1))[0]
	sessiontest.WantHeld(t, witness, "a", lease)
	if err := other.Administer(ctx, "a", fleet.Command{Delete: true}); err != nil {
		t.Fatal(err)
	}
	if keys, _ := count(t, store, "sema/"); keys != 1 {
		t.Errorf("%d keys are left", keys)
	}
	if r, err := store.Apply(ctx, "a", s.Next()); err != nil || r.Status != protocol.Unknown {
		t.Errorf("%+v, %v", r, err)
	}
	// A process whose clock is a day behind creates it again.
	late := openAt(t, server, "")
	wall := late.clock.wall
	late.clock.wall = func() protocol.Micros { return wall() - 24*3600e6 }
	again := sessiontest.Begin(t, late, "a", protocol.Config{Capacity: 1})
	if fresh := again.Granted(1, sessiontest.Acquire(1, 1))[0]; fresh <= lease || again.ID <= s.ID {
		t.Errorf("session %d and lease %d after %d and %d of the deleted semaphore", again.ID, fresh, s.ID, lease)
	}
	// A process that has not read the deletion would take the new semaphore for the old
	// one if it compared only the lengths of their logs.
	for _, by := range []*Store{store, witness} {
		if r, err := by.Apply(ctx, "a", s.Next()); err != nil || r.Status != protocol.Unknown {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

// TestStore_DeletesIdleSemaphores checks that idle semaphores are deleted, unless their
// configuration was changed.
func TestStore_DeletesIdleSemaphores(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	store := openBy(t, Options{Endpoints: server.Addresses(), Idle: time.Hour})
	for _, name := range []string{"gone", "changed", "used", "young"} {
		s := sessiontest.Begin(t, store, name, protocol.Config{Capacity: 1})
		if name == "changed" {
			c := protocol.Config{Capacity: 2, TTL: sessiontest.TTL, Version: 1, Protocol: 1}
			if err := store.Administer(ctx, name, fleet.Command{Configure: &c}); err != nil {
				t.Fatal(err)
			}
		}
		if name != "used" {
			b := s.Next()
			b.End = true
			if _, err := store.Apply(ctx, name, b); err != nil {
				t.Fatal(err)
			}
		}
	}
	later := openBy(t, Options{Endpoints: server.Addresses(), Idle: time.Hour})
	wall := later.clock.wall
	later.clock.wall = func() protocol.Micros { return wall() + 2*3600e6 }
	sessiontest.Begin(t, later, "young", protocol.Config{Capacity: 1}) // is used, not created
	sessiontest.Begin(t, later, "new", protocol.Config{Capacity: 1})
	deadline := time.Now().Add(time.Minute)
	for {
		_, err := store.Inspect(ctx, "gone")
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the idle semaphore is not deleted within a minute")
		}
		time.Sleep(10 * time.Millisecond)
	}
	later.workers.Wait()
	if names := listed(t, store, protocol.ListQuery{}); strings.Join(names, " ") != "changed new used young" {
		t.Errorf("there are %v", names)
	}
}

// unreleased is a head in the format of versions before the first release.
const unreleased = `{"format":%d,"entry":7,"complete":5,"kind":"concurrency","capacity":3,"in_use":2,"waiting":2,"sessions":1,"version":1,"changed":"2026-11-17T12:00:00Z"}`

// TestStore_RejectsOtherVersions checks that data of a newer program, and of unreleased
// ones, is not changed.
func TestStore_RejectsOtherVersions(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	store := openAt(t, server, "")
	server.Etcdctl("put", "sema/head/a", `{"data":2,"config":{"kind":"lottery"}}`)
	server.Etcdctl("put", "sema/log/a 000000000001", `what is this`)
	_, _, err := store.Open(ctx, "a", protocol.Config{Capacity: 1, TTL: sessiontest.TTL}, sessiontest.Opener("me"))
	if !errors.Is(err, protocol.ErrVersion) {
		t.Errorf("%v, want ErrVersion", err)
	}
	_, err = store.List(ctx, protocol.ListQuery{})
	if !errors.Is(err, protocol.ErrVersion) {
		t.Errorf("%v, want ErrVersion", err)
	}
	for format := 1; format <= 2; format++ {
		server.Etcdctl("put", "sema/head/old", fmt.Sprintf(unreleased, format))
		server.Etcdctl("put", "sema/log/old 000000000005", `{"by":"x-1","pace":1,"semaphore":{"last":1},"state":{"sessions":[{"id":1,"seen":1}]}}`)
		_, _, err = store.Open(ctx, "old", protocol.Config{Capacity: 1, TTL: sessiontest.TTL}, sessiontest.Opener("me"))
		storetest.WantError(t, err, `semaphore "old"`, "created by an unreleased version of Sema; delete all keys")
		_, err = store.List(ctx, protocol.ListQuery{Prefix: "o"})
		storetest.WantError(t, err, `semaphore "old"`, "created by an unreleased version of Sema; delete all keys")
		if left := server.Etcdctl("get", "--print-value-only", "sema/head/old"); strings.TrimSpace(left) != fmt.Sprintf(unreleased, format) {
			t.Errorf("it was changed to %s", left)
		}
	}
	server.Etcdctl("put", "sema/head/b", `{"data":1,"entry":1,"complete":1}`)
	_, err = store.Inspect(ctx, "b")
	storetest.WantError(t, err, `semaphore "b" is damaged`)
}
