package correct

import (
	"context"
	"log"
	"net/http"
	"sync"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/semavet/checks/testdata/correct/shared"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
)

func newService() *service {
	return &service{
		memory:    sema.NewWeighted(100),
		workers:   semaphore.NewWeighted(100),
		reserved:  semaphore.NewWeighted(100),
		waited:    semaphore.NewWeighted(100),
		requests:  semaphore.NewWeighted(100),
		inFlight:  semaphore.NewWeighted(100),
		bytes:     semaphore.NewWeighted(100),
		exclusive: semaphore.NewWeighted(100),
		enabled:   semaphore.NewWeighted(100),
		probes:    semaphore.NewWeighted(100),
		halves:    semaphore.NewWeighted(100),
		turns:     semaphore.NewWeighted(100),
		pause:     semaphore.NewWeighted(100),
		locals:    semaphore.NewWeighted(100),
		moved:     semaphore.NewWeighted(100),
	}
}

// group: an errgroup with a Weighted.
func (s *service) group(ctx context.Context, jobs []func() error) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, job := range jobs {
		if err := s.workers.Acquire(ctx, 1); err != nil {
			break
		}
		g.Go(func() error {
			defer s.workers.Release(1)
			return job()
		})
	}
	return g.Wait()
}

// reserve: the same with a Weighted.
func (s *service) reserve(ctx context.Context, n int64) (func(), error) {
	if err := s.reserved.Acquire(ctx, n); err != nil {
		return nil, err
	}
	var once sync.Once
	return func() { once.Do(func() { s.reserved.Release(n) }) }, nil
}

type cache[K comparable] struct {
	weighted *semaphore.Weighted
	entries  map[K]int64
}

func newCache[K comparable](n int64) *cache[K] {
	return &cache[K]{weighted: semaphore.NewWeighted(n), entries: map[K]int64{}}
}

func (c *cache[K]) add(ctx context.Context, key K, size int64) error {
	if err := c.weighted.Acquire(ctx, size); err != nil {
		return err
	}
	c.entries[key] = size
	return nil
}

func (c *cache[K]) remove(key K) {
	c.weighted.Release(c.entries[key])
	delete(c.entries, key)
}

func weightedMethodValue(ctx context.Context, w *semaphore.Weighted) error {
	if err := w.Acquire(ctx, 2); err != nil {
		return err
	}
	release := w.Release
	defer release(2)
	return work(ctx)
}

// counted: TryAcquire first, to count the waits.
func (s *service) counted(ctx context.Context, waits *int) error {
	if !s.waited.TryAcquire(1) {
		*waits++
		if err := s.waited.Acquire(ctx, 1); err != nil {
			return err
		}
	}
	defer s.waited.Release(1)
	return work(ctx)
}

// RoundTrip: a transport that limits if it can.
func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	err := s.requests.Acquire(r.Context(), 1)
	if err == nil {
		defer s.requests.Release(1)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// keyed: an optional semaphore, and one per key.
type keyed struct {
	mu   sync.Mutex
	sems map[string]*semaphore.Weighted
}

func (k *keyed) do(ctx context.Context, key string, f func()) error {
	k.mu.Lock()
	sem, ok := k.sems[key]
	if !ok {
		sem = semaphore.NewWeighted(1)
		k.sems[key] = sem
	}
	k.mu.Unlock()
	if sem != nil {
		if err := sem.Acquire(ctx, 1); err != nil {
			return err
		}
		defer sem.Release(1)
	}
	f()
	return nil
}

func (k *keyed) acquire(ctx context.Context, key string) error { return k.sems[key].Acquire(ctx, 1) }

func (k *keyed) release(key string) { k.sems[key].Release(1) }

// middleware: a middleware that sheds.
func (s *service) middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.inFlight.TryAcquire(1) {
			http.Error(w, "busy", http.StatusServiceUnavailable)
			return
		}
		defer func() {
			s.inFlight.Release(1)
			log.Print("released")
		}()
		next.ServeHTTP(w, r)
	})
}

// drain: a drain that holds everything until the process ends.
func (s *service) drain(ctx context.Context) error {
	return s.memory.Acquire(ctx, 100)
}

// embedded: a semaphore that is embedded.
type embedded struct {
	*semaphore.Weighted
	other int
}

func (e *embedded) run(ctx context.Context) error {
	if err := e.Acquire(ctx, 3); err != nil {
		return err
	}
	defer e.Weighted.Release(3)
	return work(ctx)
}

// start: a semaphore of another package.
func start(ctx context.Context) error { return shared.Sem.Acquire(ctx, 1) }

// unkeyed: a semaphore in a literal without keys.
type unkeyed struct{ sem *semaphore.Weighted }

func newUnkeyed() (unkeyed, func()) {
	sem := semaphore.NewWeighted(1)
	return unkeyed{sem}, func() { sem.Release(1) }
}

func (u unkeyed) acquire(ctx context.Context) error { return u.sem.Acquire(ctx, 1) }

// shrink: a weight that shrinks to what is needed.
func (s *service) shrink(ctx context.Context, estimate, actual int64) error {
	if err := s.bytes.Acquire(ctx, estimate); err != nil {
		return err
	}
	defer s.bytes.Release(min(estimate, actual))
	if estimate > actual {
		s.bytes.Release(estimate - actual)
	}
	return nil
}

// upgrade: an upgrade from one to all.
func (s *service) upgrade(ctx context.Context) error {
	if err := s.exclusive.Acquire(ctx, 1); err != nil {
		return err
	}
	held := int64(1)
	defer func() { s.exclusive.Release(held) }()
	if err := s.exclusive.Acquire(ctx, 99); err != nil {
		return err
	}
	held += 99
	return work(ctx)
}

// ifEnabled: a condition that is tested twice.
func (s *service) ifEnabled(ctx context.Context, limit int64) error {
	if limit > 0 {
		if err := s.enabled.Acquire(ctx, limit); err != nil {
			return err
		}
	}
	err := work(ctx)
	if limit > 0 {
		s.enabled.Release(limit)
	}
	return err
}

// compared: a result that is compared.
func (s *service) compared(ctx context.Context) bool {
	switch err := s.probes.Acquire(ctx, 1); err {
	case nil:
		s.probes.Release(1)
		return true
	default:
		return false
	}
}

// early: a deferred release, unless it was released before.
func (s *service) early(ctx context.Context) error {
	held := false
	defer func() {
		if held {
			s.halves.Release(1)
		}
	}()
	if err := s.halves.Acquire(ctx, 1); err != nil {
		return err
	}
	held = true
	if ctx.Err() != nil {
		s.halves.Release(1)
		held = false
		return ctx.Err()
	}
	return work(ctx)
}

// yields: a loop that holds a permit except while it waits.
func (s *service) yields(ctx context.Context, ready <-chan int) error {
	if err := s.turns.Acquire(ctx, 1); err != nil {
		return err
	}
	for {
		if work(ctx) != nil {
			s.turns.Release(1)
			return nil
		}
		s.turns.Release(1)
		<-ready
		if err := s.turns.Acquire(ctx, 1); err != nil {
			return err
		}
	}
}

// pauses: a deferred release, and a pause in which nothing is held.
func (s *service) pauses(ctx context.Context, slow func()) error {
	if err := s.pause.Acquire(ctx, 1); err != nil {
		return err
	}
	defer s.pause.Release(1)
	s.pause.Release(1)
	slow()
	return s.pause.Acquire(context.Background(), 1)
}

// local: a local release function.
func (s *service) local(ctx context.Context) error {
	release := func() { s.locals.Release(2) }
	if err := s.locals.Acquire(ctx, 2); err != nil {
		return err
	}
	if ctx.Err() != nil {
		release()
		return ctx.Err()
	}
	s.locals.Release(2)
	return nil
}

// move: two semaphores of one type.
func move(ctx context.Context, from, to *service) error {
	if err := to.moved.Acquire(ctx, 5); err != nil {
		return err
	}
	from.moved.Release(5)
	return nil
}
