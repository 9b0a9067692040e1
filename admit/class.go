package admit

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/wfq"
)

// A class is what a controller keeps for a class of requests. All of it but the switch can
// be rebuilt, so a class that is idle may be dropped.
type class struct {
	name  string
	queue *wfq.Class
	rate  limiter // of the class; none if Config.RateOf is nil
	quick bool    // Controller.admit can take from all rates

	used     atomic.Bool // since the last sweep
	shedding atomic.Bool // switched on by ShedClass; such a class is kept
	shed     [reasons]counter
	built    [reasons][len(ladder)]atomic.Pointer[Rejection]
}

// rejection returns the rejection of a request of the class. It allocates only the first
// time.
func (k *class) rejection(controller string, why Reason, after time.Duration) *Rejection {
	i := rung(after)
	if r := k.built[why][i].Load(); r != nil {
		return r
	}
	r := &Rejection{Controller: controller, Reason: why, Class: k.name, RetryAfter: ladder[i], Err: facts[why]}
	if !k.built[why][i].CompareAndSwap(nil, r) {
		return k.built[why][i].Load()
	}
	return r
}

// maxClasses bounds the classes that a controller keeps. Names may come from clients, so
// without a bound a client could exhaust the memory.
const maxClasses = 4096

// classes finds the classes of a controller by name.
type classes struct {
	queue  *wfq.Queue
	rateOf func(class string) rate.Limiter // nil: classes have no rates
	quick  bool                            // Controller.admit can take from the rate of all classes
	plain  atomic.Pointer[class]           // the class without a name, once it was used

	entries sync.Map   // string → *class
	mu      sync.Mutex // guards n, and is held while entries are added and deleted
	n       int
}

// of returns the class with this name.
func (s *classes) of(name string) *class {
	if name == "" {
		if k := s.plain.Load(); k != nil {
			return k
		}
	}
	e, ok := s.entries.Load(name)
	if !ok {
		return s.add(name)
	}
	k := e.(*class)
	if !k.used.Load() { // a store each time would move the cache line between cores
		k.used.Store(true)
	}
	return k
}

func (s *classes) add(name string) *class {
	k := &class{name: name, queue: s.queue.Class(name)}
	if s.rateOf != nil {
		k.rate = newLimiter(s.rateOf(name)) // calls the user: no lock is held
	}
	k.quick = s.quick && k.rate.quick()
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.entries.Load(name); ok {
		return e.(*class)
	}
	if s.n >= maxClasses {
		s.sweepLocked()
	}
	if s.n < maxClasses || name == "" {
		s.storeLocked(k)
	}
	return k // if all classes are in use, this one lasts for one request
}

// storeLocked adds a class that is not in entries.
func (s *classes) storeLocked(k *class) {
	s.entries.Store(k.name, k)
	s.n++
	if k.name == "" {
		s.plain.Store(k)
	}
}

// keep calls fn with the class of a name, which is added if it has to be.
func (s *classes) keep(name string, fn func(*class)) {
	k := s.add(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.entries.Load(name); ok {
		k = e.(*class)
	} else {
		s.storeLocked(k)
	}
	fn(k)
}

// sweepLocked deletes the classes that were not used since the last sweep. The one without
// a name stays, see plain.
func (s *classes) sweepLocked() {
	for name, e := range s.entries.Range {
		if k := e.(*class); !k.used.Swap(false) && !k.shedding.Load() && name != "" {
			s.entries.Delete(name)
			s.n--
		}
	}
}

// all yields the classes.
func (s *classes) all(yield func(*class) bool) {
	for _, e := range s.entries.Range {
		if !yield(e.(*class)) {
			return
		}
	}
}
