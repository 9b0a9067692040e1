package classic_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// Readers and writers with a lightswitch: the first reader takes the room, the last one
// returns it. A turnstile that each writer holds keeps writers from starving. RWLock with
// FairRW is this, with contexts and order.
func Example_lightswitch() {
	fmt.Println(run(readersAndWriters))
	// Output: 6 reads, 4 writes
}

// A lightswitch takes a room for a kind of users: the first to enter takes it, the last to
// leave returns it.
type lightswitch struct {
	mu     sync.Locker
	inside int
}

func (l *lightswitch) enter(ctx context.Context, room counter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inside == 0 {
		if err := room.Wait(ctx, 1); err != nil {
			return err
		}
	}
	l.inside++
	return nil
}

func (l *lightswitch) leave(room counter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inside--; l.inside == 0 {
		room.Post(1)
	}
}

func readersAndWriters(k kit) *problem {
	const readers, writers, each = 3, 2, 2
	room, turnstile := k.counter("room", 1), k.counter("turnstile", 1)
	switcher := &lightswitch{mu: k.mutex("lightswitch")}
	var reading, writing, reads, writes atomic.Int64
	p := &problem{
		invariant: func() bool { return writing.Load() == 0 || writing.Load() == 1 && reading.Load() == 0 },
		result:    func() string { return fmt.Sprintf("%d reads, %d writes", reads.Load(), writes.Load()) },
	}
	for i := range readers {
		p.add(fmt.Sprint("reader ", i), func(ctx context.Context) error {
			for range each {
				if err := turnstile.Wait(ctx, 1); err != nil {
					return err
				}
				turnstile.Post(1)
				if err := switcher.enter(ctx, room); err != nil {
					return err
				}
				reading.Add(1)
				k.yield()
				reads.Add(1)
				reading.Add(-1)
				switcher.leave(room)
			}
			return nil
		})
	}
	for i := range writers {
		p.add(fmt.Sprint("writer ", i), func(ctx context.Context) error {
			for range each {
				if err := turnstile.Wait(ctx, 1); err != nil {
					return err
				}
				if err := room.Wait(ctx, 1); err != nil {
					return err
				}
				writing.Add(1)
				k.yield()
				writes.Add(1)
				writing.Add(-1)
				turnstile.Post(1)
				room.Post(1)
			}
			return nil
		})
	}
	return p
}
