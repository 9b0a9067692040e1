package play

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
)

var leaseLesson = Lesson{
	ID: "lease", Title: "Lease and fence", Layout: "lease",
	Teaches: "Among machines a permit is a lease: it expires if its holder does not renew it. A holder that was paused does not know that. The fence of its lease lets the resource reject its late write.",
	Choices: []Choice{{ID: "guard", Label: "Resource", Default: "on", Options: []Option{{"on", "has a fleet.Guard"}, {"off", "has no guard"}}}},
	Code:    code("lesson_lease.go"),
	run:     runLease,
}

const leaseTTL = 3 * time.Second

func runLease(s *Stage, set Settings) {
	store := memstore.New()
	resource := &resource{stage: s, guarded: set["guard"] == "on"}
	s.showGate("lease", "the lease", 1)
	s.showGate("resource", "resource", 0)
	for i, name := range []string{"A", "B"} {
		host := &host{Store: store, beat: func() { s.send(Event{Kind: KindBeat, Worker: name, Gate: "lease", N: leaseTTL.Milliseconds()}) }}
		s.join(name, "machine "+name, func(ctx context.Context, w *Worker) {
			// code:
			client := fleet.New(host) // a store: Redis, PostgreSQL, etcd, …
			deploy, err := client.Semaphore("deploy", 1, fleet.TTL(leaseTTL))
			// end
			defer closeNow(client)
			if err != nil {
				s.note("%v", err)
				return
			}
			w.sleep(time.Duration(i) * time.Second)
			for round := 0; ctx.Err() == nil; round++ {
				hold(ctx, w, host, deploy, resource, i == 0)
				w.sleep(1500 * time.Millisecond)
			}
		})
	}
	s.note("A and B are machines. One lease of %s protects the resource; its holder renews it in the background.", seconds(leaseTTL))
}

// hold acquires the lease and writes twice. If pauses is set, the machine stops in between.
func hold(ctx context.Context, w *Worker, host *host, deploy *fleet.Semaphore, resource *resource, pauses bool) {
	ends := w.asks("lease", 1)
	// code:
	permit, err := deploy.Acquire(ctx, 1)
	// end
	resource.expire(w, err)
	ends(err)
	if err != nil {
		return
	}
	// code+:
	lease, _ := fleet.LeaseOf(permit)
	resource.write(w, lease.Fence)
	// end
	w.sleep(1200 * time.Millisecond)
	if pauses {
		host.pause()
		w.does("paused", "Machine A is paused: a long garbage collection, a suspended laptop, a live migration. It sends no heartbeats.")
		w.sleep(leaseTTL / 2)
		w.stage.note("The store receives no heartbeat from A. Nothing happens until the lease expires.")
		w.sleep(leaseTTL + 1500*time.Millisecond)
		host.resume()
		w.does("", "Machine A continues where it was stopped, and knows nothing of the pause. It writes.")
	}
	// code+:
	resource.write(w, lease.Fence) // late, if the machine was paused in between
	// end
	if pauses {
		w.sleep(800 * time.Millisecond)
	}
	if err := permit.Err(); err != nil {
		w.stage.note("Now the client of %s notices: %v.", w.Name, err)
	}
	resource.end(w)
	permit.Release()
}

// A resource is what the lease protects.
type resource struct {
	stage   *Stage
	guarded bool
	// code:
	guard fleet.Guard // stored with the resource
	// end
	mu     sync.Mutex
	last   protocol.Seq
	holder *Worker // of the lease
}

// expire shows that the holder has lost its lease, if another worker has acquired it.
func (r *resource) expire(next *Worker, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		return
	}
	if r.holder != nil {
		r.stage.send(Event{Kind: KindLost, Worker: r.holder.Name, Gate: "lease", N: 1,
			Caption: fmt.Sprintf("The lease of %s has expired, and the store grants one to %s. Its fence is higher. %s does not know.", r.holder.Name, next.Name, r.holder.Name)})
	}
	r.holder = next
}

// end shows that a worker releases its lease, unless it has lost it.
func (r *resource) end(w *Worker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holder == w {
		w.releases("lease", 1, "")
		r.holder = nil
	}
}

// write shows whether the resource accepts a write.
func (r *resource) write(w *Worker, fence fleet.Fence) {
	if w.ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := Event{Kind: KindWrote, Worker: w.Name, Gate: "resource", N: int64(fence.Seq), OK: true}
	// code:
	err := error(nil)
	if r.guarded {
		err = r.guard.Admit(fence)
	}
	// end
	switch {
	case errors.Is(err, sema.ErrLost):
		e.OK, e.Text = false, err.Error()
		e.Caption = fmt.Sprintf("Rejected: fence %s of %s is of a lease that ended before fence %s was granted. The write of the new holder is safe.", short(fence.Seq), w.Name, short(r.last))
	case err != nil:
		e.OK, e.Text, e.Caption = false, err.Error(), err.Error()
	case fence.Seq < r.last:
		e.Caption = fmt.Sprintf("Lost update: without a guard, the late write of %s overwrites what the new holder has written. The lease alone cannot prevent this.", w.Name)
	default:
		e.Caption = fmt.Sprintf("%s writes with fence %s, and the resource accepts it.", w.Name, short(fence.Seq))
	}
	r.last = max(r.last, fence.Seq)
	r.stage.send(e)
}

// short returns the last digits of a fence: the first ones are the time of the store's start.
func short(fence protocol.Seq) string { return fmt.Sprintf("…%03d", fence%1000) }

func closeNow(client *fleet.Client) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = client.Close(ended) // the store is dropped with it
}

// A host is the connection of a machine to the store. While the machine is paused, nothing
// passes.
type host struct {
	fleet.Store
	beat   func() // called for each batch that reaches the store
	mu     sync.Mutex
	paused chan struct{} // closed by resume; nil: not paused
}

func (h *host) pause() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.paused = make(chan struct{})
}

func (h *host) resume() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.paused)
	h.paused = nil
}

func (h *host) pass(ctx context.Context) error {
	h.mu.Lock()
	paused := h.paused
	h.mu.Unlock()
	if paused == nil {
		return nil
	}
	select {
	case <-paused:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Open implements [fleet.Store].
func (h *host) Open(ctx context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	if err := h.pass(ctx); err != nil {
		return 0, protocol.Config{}, err
	}
	return h.Store.Open(ctx, name, c, by)
}

// Apply implements [fleet.Store].
func (h *host) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	if err := h.pass(ctx); err != nil {
		return protocol.Reply{}, err
	}
	h.beat()
	return h.Store.Apply(ctx, name, b)
}
