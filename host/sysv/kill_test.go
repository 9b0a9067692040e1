//go:build linux && (amd64 || arm64 || riscv64 || loong64)

package sysv_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host/sysv"
	"github.com/sema-go/sema/internal/proctest"
)

var stressRounds = flag.Int("stress.rounds", 20, "number of processes that the kill test kills")

const (
	killWorkers  = 4
	killCapacity = 5
)

// The word on the board of the kill test contains a byte for each worker: the number of
// permits that it holds. Another byte is the worker about to be killed, counted from 1. A
// worker adds its permits after it acquires and subtracts them before it releases. So
// the word never counts more than is held. But the kernel releases the permits of a
// killed worker before the test can clear the worker's byte. Therefore the last byte:
// with one read a worker sees all permits held by live workers.
const victimByte = 7

func heldByLive(word uint64) (held uint64) {
	victim := int(word>>(8*victimByte)) - 1
	for worker := range killWorkers {
		if worker != victim {
			held += word >> (8 * worker) & 0xff
		}
	}
	return held
}

// TestGate_KilledProcessesLoseNothing kills processes that acquire, hold, wait for and
// release permits, at random moments, and starts others in their place.
func TestGate_KilledProcessesLoseNothing(t *testing.T) {
	t.Parallel()
	set := newSet(t, killCapacity)
	b := newBoard(t)
	start := func(worker int) *proctest.Process {
		p := proctest.Start(t, "worker", idOf(set), b.path, fmt.Sprint(worker))
		p.Expect("working")
		return p
	}
	var workers [killWorkers]*proctest.Process
	for w := range workers {
		workers[w] = start(w)
	}
	for round := range *stressRounds {
		grants := totalGrants(b)
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
		w := rand.IntN(killWorkers)
		b.add(uint64(w+1) << (8 * victimByte))
		workers[w].End()
		clear(b, w)
		eventually(t, fmt.Sprintf("in round %d, another worker is served", round), func() bool { return totalGrants(b) > grants })
		workers[w] = start(w)
	}
	for _, p := range workers {
		p.Send("stop")
	}
	for _, p := range workers {
		p.Expect("stopped")
	}
	if word := b.word.Load(); word != 0 {
		t.Errorf("the word is %x, want 0", word)
	}
	expectValues(t, set, killCapacity)
	awaitWaiting(t, set, 0, 0)
}

func totalGrants(b *board) (total uint64) {
	for w := range killWorkers {
		total += b.counts[w].Load()
	}
	return total
}

// clear removes a killed worker from the board, atomically.
func clear(b *board, worker int) {
	for {
		word := b.word.Load()
		if b.word.CompareAndSwap(word, word&^(0xff<<(8*worker)|0xff<<(8*victimByte))) {
			return
		}
	}
}

func work(c *proctest.Child) {
	set, b, worker := openArg(c, 0), openBoard(c, c.Args[1]), number(c, 2)
	gate, err := sysv.AsGate(set, 0, killCapacity)
	c.Must(err)
	stop := onCommand(c)
	var began sync.Once
	var working sync.WaitGroup
	for range 3 {
		working.Go(func() {
			for !stop.Load() {
				c.Must(workOnce(gate, b, worker))
				began.Do(func() { c.Send("working") })
			}
		})
	}
	working.Wait()
	c.Send("stopped")
}

func workOnce(gate sema.Gate, b *board, worker int) error {
	n := int64(rand.IntN(3) + 1)
	permit, err := gate.Acquire(background, n)
	if err != nil {
		return err
	}
	defer permit.Release()
	mine := uint64(n) << (8 * worker)
	word := b.add(mine)
	defer b.add(-mine)
	if held := heldByLive(word); held > killCapacity {
		return fmt.Errorf("%d permits are held of %d (%x)", held, killCapacity, word)
	}
	b.counts[worker].Add(1)
	if rand.IntN(2) == 0 {
		pause()
	}
	return nil
}

// pause spins for about 50 µs.
func pause() {
	var spins atomic.Int32
	for end := time.Now().Add(50 * time.Microsecond); time.Now().Before(end); {
		spins.Add(1)
	}
}
