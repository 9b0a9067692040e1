package main

import (
	"strings"
	"testing"
	"time"
)

func TestAcquire_LeaseOutlivesTheCommand(t *testing.T) {
	t.Parallel()
	amongMachines(t, func(t *testing.T, s shell) {
		lease := strings.TrimSpace(s.must("acquire", "x", "-n", "1", "--about", "a deployment"))
		if got := s.show("x"); got.InUse != 1 || len(got.Holders) != 1 || got.Holders[0].About != "a deployment" {
			t.Errorf("it shows %+v", got)
		}
		s.expect(75, []string{`no permit of "x" is free`}, "acquire", "x", "--no-wait")
		s.expect(75, []string{"within "}, "acquire", "x", "--wait", "100ms")
		if renewed := strings.TrimSpace(s.must("renew", "x", lease)); renewed != lease {
			t.Errorf("renewed is %q", renewed)
		}
		s.must("release", "x", lease)
		s.expect(76, []string{"lease lost"}, "release", "x", lease)
		s.expect(76, []string{"lease lost"}, "renew", "x", lease)
		s.expect(64, []string{"id that acquire returned"}, "renew", "x", "it")
		s.expect(0, nil, "run", "x", "--no-wait", "--", "true")
	})
}

func TestAcquire_LeaseWithoutRenewalIsLost(t *testing.T) {
	t.Parallel()
	amongMachines(t, func(t *testing.T, s shell) {
		lease := strings.TrimSpace(s.must("acquire", "x", "-n", "1", "--ttl", "500ms"))
		s.must("acquire", "x", "--wait", "1m") // not run: on a busy machine, its command would lose a lease of 500ms, too
		s.expect(76, nil, "renew", "x", lease)
	})
}

func TestAcquire_JSONHasTheWholeLease(t *testing.T) {
	t.Parallel()
	amongMachines(t, func(t *testing.T, s shell) {
		r := s.run("acquire", "x", "-n", "3", "-w", "2", "--ttl", "30s", "-o", "json")
		lease := decode[struct {
			Semaphore, Lease, TTL string
			Weight                int64
			ValidFor              string `json:"valid_for"`
			Fence                 struct {
				Seq, Floor uint64
				Revoked    [][2]uint64
				Exact      bool
			}
		}](t, r.out)
		held, err := time.ParseDuration(lease.ValidFor)
		if err != nil || held <= 15*time.Second || held > 20*time.Second || lease.TTL != "30s" || lease.Weight != 2 || lease.Semaphore != "x" || lease.Fence.Seq == 0 || lease.Fence.Floor != lease.Fence.Seq {
			t.Errorf("the lease is %+v", lease)
		}
		warned := s.run("acquire", "x", "-n", "4", "--ttl", "1m")
		if warned.code != 0 || !strings.Contains(warned.err, "capacity of 3, not 4") || !strings.Contains(warned.err, "TTL of 30s, not 1m0s") {
			t.Errorf("exit code %d, stderr %s", warned.code, warned.err)
		}
		// revoke accepts the lease as show and acquire print it.
		s.must("revoke", "x", strings.TrimSpace(warned.out), "--now", "--yes")
		s.expect(64, []string{"--yes"}, "revoke", "x", lease.Lease, "--now")
		s.expect(76, nil, "renew", "x", strings.TrimSpace(warned.out))
	})
}

// TestAcquire_WaitsWithoutBound checks that an acquire without --wait waits until a permit is free.
func TestAcquire_WaitsWithoutBound(t *testing.T) {
	t.Parallel()
	amongMachines(t, func(t *testing.T, s shell) {
		lease := strings.TrimSpace(s.must("acquire", "x", "-n", "1", "--ttl", "10m"))
		waiter := s.start("acquire", "x")
		eventually(t, "the second acquire is queued", func() bool { return s.show("x").Waiting == 1 })
		s.must("release", "x", lease)
		if second := waiter.line(); second == "" || second == lease {
			t.Errorf("the second lease is %q", second)
		}
	})
}

// TestRun_FenceRises checks that the fence rises from one run to the next.
func TestRun_FenceRises(t *testing.T) {
	t.Parallel()
	amongMachines(t, func(t *testing.T, s shell) {
		print := []string{"run", "x", "-n", "1", "--", "sh", "-c", `echo "$SEMA_NAME $SEMA_FENCE $SEMA_FENCE_FLOOR"; test "$SEMA_FENCE" = "$SEMA_LEASE"`}
		first, second := strings.Fields(s.must(print...)), strings.Fields(s.must(print...))
		if len(first) != 3 || len(second) != 3 || first[0] != "x" || len(first[1]) != len(second[1]) || first[1] >= second[1] || second[2] != second[1] {
			t.Errorf("first %v, then %v", first, second)
		}
	})
}

// TestRun_About checks that the description of a run is shown.
func TestRun_About(t *testing.T) {
	t.Parallel()
	amongMachines(t, func(t *testing.T, s shell) {
		p := s.start("run", "x", "--about", "nightly import", "--", "sh", "-c", "echo ready; read line")
		p.line()
		if got := s.show("x"); len(got.Holders) != 1 || !strings.Contains(got.Holders[0].About, "nightly import") || !strings.Contains(got.Holders[0].About, "command=sh") {
			t.Errorf("it shows %+v", got.Holders)
		}
	})
}
