package redisstore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/enginetest"
	"github.com/sema-go/sema/internal/enginetest/redistest"
	"github.com/sema-go/sema/internal/sessiontest"
)

// A guarded is what a semaphore protects. It looks at fences, and counts who is
// at work on it.
type guarded struct {
	capacity int
	guard    fleet.Guard

	mu      sync.Mutex
	at      map[protocol.Seq]bool
	over    int // times that more were at work than may be
	refused int
	most    int
}

// admit has a holder write, and reports whether it may.
func (g *guarded) admit(f protocol.Fence) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.guard.Admit(f) != nil {
		g.refused++
		return false
	}
	g.at[f.Seq] = true
	g.most = max(g.most, len(g.at))
	if len(g.at) > g.capacity {
		g.over++
	}
	return true
}

func (g *guarded) leave(f protocol.Fence) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.at, f.Seq)
}

// work acquires, writes for a while as long as the permit is held, and releases,
// until ctx ends. Grants are noted with their time.
func (g *guarded) work(ctx context.Context, s *fleet.Semaphore, granted func()) {
	for ctx.Err() == nil {
		p, err := s.Acquire(ctx, 1)
		if err != nil {
			continue
		}
		granted()
		g.write(ctx, p)
		p.Release()
	}
}

func (g *guarded) write(ctx context.Context, p sema.Permit) {
	lease, _ := fleet.LeaseOf(p)
	defer g.leave(lease.Fence)
	for range 10 {
		if p.Err() != nil || !g.admit(lease.Fence) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-p.Lost():
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// A parted is a primary, its replica and Sentinels, with a wall around the
// primary. Who is inside speaks to it directly.
type parted struct {
	primary, replica *redistest.Server
	sentinels        []*redistest.Server
	walls            [2]*enginetest.Proxy // for its replica, and for all others
	inside, outside  string               // URLs
}

const (
	partedCapacity = 3
	partedTTL      = 1500 * time.Millisecond
	// A replica that was silent for three seconds counts no more, and that is
	// noticed within two.
	partedLag       = "3"
	partedPromotion = 5 * time.Second
)

func newParted(t *testing.T) *parted {
	t.Helper()
	p := &parted{primary: redistest.Start(t, "--repl-diskless-sync-delay", "0", "--min-replicas-to-write", "1", "--min-replicas-max-lag", partedLag)}
	for i := range p.walls {
		p.walls[i] = enginetest.NewProxy(t, p.primary.Address)
	}
	p.replica = redistest.Start(t, "--replicaof", fmt.Sprint("127.0.0.1 ", p.walls[0].Port), "--repl-diskless-sync-delay", "0")
	p.replica.Await("master_link_status:up", "INFO", "replication")
	p.primary.Await("min_slaves_good_slaves:1", "INFO", "replication")
	p.sentinels = redistest.Sentinels(t, 3, p.walls[1].Port)
	for _, s := range p.sentinels {
		s.Await("num-slaves\n1", "SENTINEL", "MASTER", "main")
	}
	p.inside = fmt.Sprintf("redis://%s?promotion=%v", p.primary.Address, partedPromotion)
	p.outside = fmt.Sprintf("redis://%s?sentinel=main&promotion=%v", p.sentinels[0].Address, partedPromotion)
	return p
}

// part closes the wall, or opens it.
func (p *parted) part(closed bool) {
	for _, w := range p.walls {
		w.SetFault(enginetest.Fault{LoseRequests: closed, LoseReplies: closed})
	}
}

// awaitPromotion is until who asks is told of the new primary.
func (p *parted) awaitPromotion() {
	for _, s := range p.sentinels {
		s.Await(fmt.Sprint(p.replica.Port), "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main")
	}
}

func (p *parted) semaphore(t *testing.T, url string) *fleet.Semaphore {
	t.Helper()
	client := fleet.New(openURL(t, url))
	t.Cleanup(func() {
		closing, stop := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer stop()
		_ = client.Close(closing, fleet.CloseAbandon)
	})
	s, err := client.Semaphore("db", partedCapacity, fleet.TTL(partedTTL))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A primary that is cut off with some of its clients goes on for as long as it
// believes in its replica. The one that is promoted grants nothing before nobody
// can trust in that any more.
func TestAPrimaryThatIsCutOffAdmitsNobodyTooMany(t *testing.T) {
	t.Parallel()
	p := newParted(t)
	store := &guarded{capacity: partedCapacity, at: map[protocol.Seq]bool{}}
	var inside, outside atomic.Int64 // grants
	working, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	stop := sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	start := func(url string, grants *atomic.Int64) {
		for range 2 {
			semaphore := p.semaphore(t, url)
			for range 4 {
				wg.Go(func() { store.work(working, semaphore, func() { grants.Add(1) }) })
			}
		}
	}
	await := func(grants *atomic.Int64, more int64) {
		t.Helper()
		before := grants.Load()
		for began := time.Now(); grants.Load() < before+more; time.Sleep(5 * time.Millisecond) {
			if time.Since(began) > 40*time.Second {
				t.Fatal("nothing is granted any more")
			}
		}
	}
	start(p.inside, &inside)
	await(&inside, 20)
	p.part(true)
	await(&inside, 20)
	p.awaitPromotion()
	start(p.outside, &outside)
	await(&outside, 20)
	// The old primary is there, and does not grant.
	if _, err := p.primary.Do("SET", "something", "1"); err == nil || !strings.Contains(err.Error(), "NOREPLICAS") {
		t.Errorf("error %v of the old primary, want that it has too few replicas", err)
	}
	before := inside.Load()
	p.part(false)
	await(&outside, 20)
	stop()
	if late := inside.Load() - before; late > 0 {
		t.Errorf("the old primary granted %d permits after the new one did", late)
	}
	if store.over > 0 || store.refused > 0 || store.most < partedCapacity {
		t.Errorf("up to %d held %d permits, %d times too many; %d writes were refused", store.most, partedCapacity, store.over, store.refused)
	}
}

// A primary that was asleep while another one was promoted has not noticed yet
// that its replica is silent, when it wakes up.
func TestAPrimaryThatWakesUpGrantsNothing(t *testing.T) {
	t.Parallel()
	p := newParted(t)
	config := protocol.Config{Capacity: partedCapacity, TTL: protocol.Micros(partedTTL.Microseconds())}
	inside := sessiontest.Begin(t, openURL(t, p.inside), "db", config)
	inside.Granted(1, sessiontest.Acquire(1, 1))
	inside.Say(sessiontest.Release(inside.LastLease()))
	p.primary.Must("WAIT", "1", "5000")

	p.part(true)
	p.primary.Pause()
	p.awaitPromotion()
	outside := p.semaphore(t, p.outside)
	store := &guarded{capacity: partedCapacity, at: map[protocol.Seq]bool{}}
	for range partedCapacity {
		permit, err := outside.Acquire(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		lease, _ := fleet.LeaseOf(permit)
		store.admit(lease.Fence)
	}
	type answer struct {
		protocol.Reply
		error
	}
	answered := make(chan answer)
	go func() {
		r, err := inside.Store.Apply(ctx, "db", inside.Next(sessiontest.Acquire(2, 1)))
		answered <- answer{r, err}
	}()
	time.Sleep(100 * time.Millisecond) // it is there when the primary wakes up
	p.primary.Continue()
	a := <-answered
	for _, f := range a.Results {
		if f.Kind == protocol.Granted {
			t.Errorf("the old primary grants lease %d, while %d of %d are held", f.Lease, len(store.at), partedCapacity)
		}
	}
	if a.error == nil || !strings.Contains(a.error.Error(), "NOREPLICAS") {
		t.Errorf("error %v, want that there are too few replicas", a.error)
	}
}
