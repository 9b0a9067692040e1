//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/internal/enginetest"
)

// A plan is how engines are tormented.
type plan struct {
	lasts    time.Duration
	ttl      time.Duration
	capacity int64
	seed     uint64
	massacre int
	only     string // faults with this in their name; all of them have ""
	log      func(string)
}

const (
	processes = 4
	callers   = 8 // in each
)

// recovery is for how long somebody may wait after all is well again: leases of
// the dead have to run out, a server that was promoted is silent for a TTL and
// three seconds, and there is a line.
func (p plan) recovery() time.Duration { return 3*p.ttl + 6*time.Second }

// torment starts an engine and workers, has faults happen to them, and says what
// came of it.
func (p plan) torment(e engine) (r report, err error) {
	err = enginetest.Run(func(s *enginetest.Scope) {
		target := e.start(s, p.ttl)
		resource := newResource(s)
		crew := newCrew(s, p.seed, assignment{
			URL: target.url, Inside: target.inside, API: target.api, Socket: resource.socket, Capacity: p.capacity, TTL: p.ttl, Callers: callers,
		})
		for range processes {
			crew.hire()
		}
		start := time.Now()
		faults := slices.DeleteFunc(append(target.faults, crewFaults(crew)...), func(f fault) bool { return !strings.Contains(f.name, p.only) })
		if len(faults) == 0 {
			s.Fatalf("there is no fault with %q in its name", p.only)
		}
		r.faults = p.afflict(start, faults, crew)
		r.stuck = p.recover(resource)
		r.lasted = time.Since(start)
		r.trouble = crew.dismiss(p.recovery() + 3*p.ttl)
		r.missing, r.free = p.collect(s, target.direct)
		r.judge(p, resource)
	})
	return r, err
}

// recover is how many of those who wait now are not served in time, now that all
// is well.
func (p plan) recover(r *resource) (stuck int) {
	well := time.Now()
	for {
		stuck = r.waitingSince(well)
		if stuck == 0 || time.Since(well) > p.recovery() {
			return stuck
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// afflict has faults happen one after the other, each at least once if there is
// the time, with a while in between in which all is well.
func (p plan) afflict(start time.Time, faults []fault, crew *crew) (happened []string) {
	rng := rand.New(rand.NewPCG(p.seed, 1))
	killed := p.massacre == 0
	for time.Since(start) < p.lasts {
		for _, i := range rng.Perm(len(faults)) {
			if time.Since(start) >= p.lasts {
				break
			}
			if !killed && time.Since(start) > p.lasts/2 {
				killed = true
				happened = append(happened, p.happen(massacre(crew, p.massacre)))
			}
			time.Sleep(p.ttl + time.Duration(rng.Int64N(int64(p.ttl))))
			happened = append(happened, p.happen(faults[i]))
		}
	}
	return happened
}

func (p plan) happen(f fault) string {
	p.log("  " + f.name)
	f.begin()
	time.Sleep(f.lasts)
	if f.end != nil {
		f.end()
	}
	return f.name
}

// collect looks how much of the capacity is missing though nobody uses it, and
// how long it took until nothing was. The dead may keep theirs for 1.2 TTLs.
func (p plan) collect(s *enginetest.Scope, url string) (missing int64, free time.Duration) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), p.recovery())
	defer cancel()
	client, err := fleet.Open(ctx, url)
	if err != nil {
		s.Fatalf("%v", err)
	}
	defer client.Close(context.Background(), fleet.CloseRelease)
	gate, err := client.Semaphore(semaphoreName, p.capacity, fleet.TTL(p.ttl))
	if err != nil {
		s.Fatalf("%v", err)
	}
	for {
		permit, err := gate.TryAcquire(ctx, p.capacity)
		if err == nil {
			permit.Release()
			return 0, time.Since(start)
		}
		if !errors.Is(err, sema.ErrFull) && !errors.Is(err, sema.ErrUnavailable) { // which is while the engine cannot decide
			s.Fatalf("%v", err)
		}
		if ctx.Err() != nil || time.Since(start) > p.recovery()-p.ttl {
			info, err := client.Info(context.Background(), semaphoreName)
			if err != nil {
				s.Fatalf("%v", err)
			}
			p.log(fmt.Sprintf("  left: %+v", info))
			return info.InUse, time.Since(start)
		}
		time.Sleep(p.ttl / 10)
	}
}
