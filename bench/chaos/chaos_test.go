//go:build unix

package main

import (
	"errors"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/storetest"
)

func TestMain(m *testing.M) {
	runWorkerIfAssigned()
	os.Exit(m.Run())
}

var duration = flag.Duration("chaos.for", 5*time.Second, "for how long faults are injected into each store")

// TestSetups_KeepTheCapacityUnderFaults is a short run with each store. make
// chaos runs longer.
func TestSetups_KeepTheCapacityUnderFaults(t *testing.T) {
	for _, e := range setups {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			p := plan{duration: *duration, ttl: 2 * time.Second, capacity: 5, seed: uint64(time.Now().UnixNano()), log: func(text string) { t.Log(text) }}
			t.Logf("seed %d", p.seed)
			r, err := p.run(e)
			switch {
			case errors.Is(err, storetest.ErrSkipped):
				t.Skip(err)
			case err != nil:
				t.Fatal(err)
			}
			t.Log("\n" + r.String())
			for _, v := range r.violations() {
				t.Error(v)
			}
		})
	}
}

// at returns a time some milliseconds after a fixed start.
func at(ms int) time.Time { return time.UnixMilli(int64(1_000_000 + ms)) }

// held returns a usage of one permit that was requested, granted, released and
// ended.
func held(seq protocol.Seq, requestedAt, granted, releasing, ended int) *usage {
	return &usage{
		weight: 1, seq: seq, requestedAt: at(requestedAt), granted: at(granted), firstWrite: at(granted), confirmedAt: at(releasing), lastWrite: at(releasing),
		releasing: at(releasing), ended: at(ended), end: released,
	}
}

func TestChecks_DetectViolations(t *testing.T) {
	t.Parallel()
	lostOne := held(1, 0, 1, 2, 40)
	lostOne.end = lost
	ended := held(1, 0, 1, 2, 15)
	ended.end = processEnded
	for name, c := range map[string]struct {
		all   []*usage
		peak  int64
		order porcupine.CheckResult
	}{
		"one after the other":             {[]*usage{held(1, 0, 1, 5, 6), held(2, 0, 5, 9, 10)}, 1, porcupine.Ok},
		"two at a time":                   {[]*usage{held(1, 0, 1, 5, 6), held(2, 0, 4, 9, 10)}, 2, porcupine.Illegal},
		"granted before the release":      {[]*usage{held(1, 0, 1, 8, 9), held(2, 0, 7, 9, 10)}, 2, porcupine.Illegal},
		"a fence that is too low":         {[]*usage{held(2, 0, 1, 5, 6), held(1, 7, 8, 9, 10)}, 1, porcupine.Illegal},
		"lost, and granted to another":    {[]*usage{lostOne, held(2, 5, 10, 20, 21)}, 1, porcupine.Ok},
		"granted before the holder ended": {[]*usage{ended, held(2, 3, 10, 20, 21)}, 1, porcupine.Illegal},
		"granted after the holder ended":  {[]*usage{ended, held(2, 3, 16, 20, 21)}, 1, porcupine.Ok},
		"parts of blocks have no order":   {[]*usage{held(0, 0, 1, 5, 6), held(0, 0, 6, 9, 10)}, 1, porcupine.Ok},
		"parts of blocks count":           {[]*usage{held(0, 0, 1, 5, 6), held(0, 0, 4, 9, 10)}, 2, porcupine.Ok},
		"three, of which two at a time":   {[]*usage{held(1, 0, 1, 5, 6), held(2, 0, 6, 9, 10), held(3, 0, 8, 12, 13)}, 2, porcupine.Illegal},
		"no usages":                       {nil, 0, porcupine.Ok},
	} {
		if peak := peakWeight(admitted(c.all)); peak != c.peak {
			t.Errorf("%s: the guard admitted %d at a time, want %d", name, peak, c.peak)
		}
		if peak := peakWeight(confirmed(c.all)); peak != c.peak {
			t.Errorf("%s: holders relied on %d at a time, want %d", name, peak, c.peak)
		}
		if order := linearizable(c.all, 1, time.Minute); order != c.order {
			t.Errorf("%s: order %s, want %s", name, order, c.order)
		}
	}
}
