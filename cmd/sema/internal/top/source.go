package top

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/user"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sema-go/sema/cmd/sema/internal/store"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/survey"
)

// A source is where semaphores are looked at, and changed.
type source interface {
	// look returns all semaphores whose names begin with a prefix. The selected one
	// is surely up to date.
	look(ctx context.Context, prefix, selected string) (view, error)
	drain(ctx context.Context, name string) error
	resume(ctx context.Context, name string) error
	resize(ctx context.Context, name string, capacity int64) error
	revoke(ctx context.Context, name string, lease uint64) error
}

// A view is what was seen at one look.
type view struct {
	semaphores []semaphore
	more       int // semaphores that were not read yet
}

// A semaphore is one, for people.
type semaphore struct {
	name      string
	capacity  int64 // the target
	effective int64 // now, on the way there
	inUse     int64
	waiting   int
	draining  bool
	ramp      int64
	window    time.Duration // of a rate
	ttl       time.Duration
	holders   []holder
	line      []waiter
	failure   string    // why it could not be read
	readAt    time.Time // by the clock of the store
	gone      bool      // it was deleted
}

// A holder is a permit that is out.
type holder struct {
	lease   uint64
	weight  int64
	held    time.Duration
	who     string
	where   string
	pooled  bool
	revoked bool // and its holder has not let go yet
}

// A waiter is one in line.
type waiter struct {
	weight     int64
	who, where string
}

// openSource opens a store.
func openSource(ctx context.Context, u store.URL) (source, error) {
	if u.IsHost() {
		return openHost(u)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	opened, err := u.Open(ctx, store.Reading)
	if err != nil {
		return nil, store.Unreached(err)
	}
	client := fleet.New(opened)
	if _, err := client.List(ctx, ""); err != nil {
		store.CloseClient(client)
		return nil, store.Unreached(err)
	}
	return &fleetSource{client: client}, nil
}

// patience is how long an engine has to answer.
const patience = 5 * time.Second

// A fleetClient is what is used of fleet.Client.
type fleetClient interface {
	List(ctx context.Context, prefix string) ([]string, error)
	Inspect(ctx context.Context, name string) (protocol.Snapshot, error)
	Ping(ctx context.Context) (time.Time, error)
	Configure(ctx context.Context, name string, change func(*protocol.Config)) error
	Revoke(ctx context.Context, name string, r fleet.Revocation) error
}

// A fleetSource reads a store. It is used by one goroutine at a time.
type fleetSource struct {
	client fleetClient

	mu     sync.Mutex
	survey survey.Survey
	read   map[string]semaphore // as last read
}

// Close closes the client.
func (s *fleetSource) Close() error { return store.CloseClient(s.client.(*fleet.Client)) }

const (
	// mostLooked is how many semaphores, by waiters, are read at every look.
	mostLooked = 500
	// atATime is how many are read at the same time.
	atATime = 8
	// surveyTime is how long a look may take over the others.
	surveyTime = 2 * time.Second
)

// look reads the selected semaphore, those with the most waiters, and some of the
// others. What it does not read is as it was read last.
func (s *fleetSource) look(ctx context.Context, prefix, selected string) (v view, err error) {
	names, err := s.client.List(ctx, prefix)
	if err != nil {
		return v, err
	}
	s.mu.Lock() // a look besides the regular one follows each action
	defer s.mu.Unlock()
	s.survey.Keep(names)
	now := s.now(ctx)
	top := s.survey.Top(names, mostLooked, func(a, b survey.Load) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Use, a.Use))
	})
	if slices.Contains(names, selected) && !slices.Contains(top, selected) {
		top = append(top, selected)
	}
	read := s.readAll(ctx, top, now)
	soon, cancel := context.WithTimeout(ctx, surveyTime)
	defer cancel()
	maps.Copy(read, s.readAll(soon, s.survey.Due(time.Now(), names, top), now))
	if err := ctx.Err(); err != nil {
		return v, err
	}
	for _, name := range names {
		if one, known := read[name]; known {
			v.semaphores = append(v.semaphores, one)
		} else if one, known := s.read[name]; known {
			one.age(now.Sub(one.readAt))
			v.semaphores, read[name] = append(v.semaphores, one), one
		}
	}
	s.read = read
	v.semaphores = slices.DeleteFunc(v.semaphores, func(s semaphore) bool { return s.gone })
	v.more = s.survey.Totals(names).Unknown
	return v, nil
}

// readAll reads semaphores until ctx ends. Those that were deleted are marked as gone.
func (s *fleetSource) readAll(ctx context.Context, names []string, now time.Time) map[string]semaphore {
	all := make([]semaphore, len(names))
	turns := make(chan struct{}, atATime)
	var wg sync.WaitGroup
	for i, name := range names {
		turns <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-turns }()
			all[i] = s.inspect(ctx, name, now)
		})
	}
	wg.Wait()
	read := make(map[string]semaphore, len(names))
	for _, one := range all {
		if one.name != "" {
			read[one.name] = one
		}
	}
	return read
}

// inspect returns an unnamed semaphore if ctx ends before.
func (s *fleetSource) inspect(ctx context.Context, name string, now time.Time) semaphore {
	snapshot, err := s.client.Inspect(ctx, name)
	switch at := time.Now(); {
	case errors.Is(err, fs.ErrNotExist):
		s.survey.Forget(name)
		return semaphore{name: name, gone: true}
	case err != nil && ctx.Err() != nil:
		return semaphore{}
	case err != nil:
		s.survey.Fail(name, at)
		return semaphore{name: name, readAt: now, failure: err.Error()}
	default:
		one := semaphoreOf(name, snapshot, now)
		s.survey.Note(name, survey.Load{At: at, Waiting: int64(one.waiting), Use: one.utilisation()})
		return one
	}
}

// age adds to how long permits are held, since the semaphore was read.
func (s *semaphore) age(by time.Duration) {
	s.readAt = s.readAt.Add(by)
	s.holders = slices.Clone(s.holders)
	for i := range s.holders {
		s.holders[i].held += max(0, by)
	}
}

// now is the time of the engine, by which it notes since when permits are held.
func (s *fleetSource) now(ctx context.Context) time.Time {
	if there, err := s.client.Ping(ctx); err == nil && !there.IsZero() {
		return there
	}
	return time.Now()
}

func semaphoreOf(name string, s protocol.Snapshot, now time.Time) semaphore {
	seen := semaphore{
		name: name, readAt: now, capacity: s.Config.Capacity, effective: s.Effective, inUse: s.InUse, waiting: len(s.Queue), draining: s.Config.Draining, ramp: s.Config.Ramp,
		window: durationOf(s.Config.Window), ttl: durationOf(s.Config.TTL),
	}
	instances := map[protocol.Session]string{}
	for _, one := range s.Sessions {
		instances[one.Session] = whoIs(one.Client)
	}
	for _, l := range s.Leases {
		seen.holders = append(seen.holders, holder{
			lease: uint64(l.Seq), weight: l.Weight, held: max(0, now.Sub(time.UnixMicro(int64(l.Since)))), who: instances[l.Session], where: l.Details.About(), pooled: l.Pooled, revoked: l.Revoked,
		})
	}
	for _, t := range s.Queue {
		seen.line = append(seen.line, waiter{t.Weight, instances[t.Session], t.Details.About()})
	}
	return seen
}

func durationOf(m protocol.Micros) time.Duration { return time.Duration(m) * time.Microsecond }

// whoIs returns the host and process of a client, or its instance if it has not sent
// them.
func whoIs(c protocol.Client) string {
	if c.Host == "" || c.Process == 0 {
		return c.Instance
	}
	return fmt.Sprintf("%s/%d", c.Host, c.Process)
}

func (s *fleetSource) drain(ctx context.Context, name string) error {
	return s.client.Configure(ctx, name, func(c *protocol.Config) { c.Draining = true })
}

func (s *fleetSource) resume(ctx context.Context, name string) error {
	return s.client.Configure(ctx, name, func(c *protocol.Config) { c.Draining = false })
}

func (s *fleetSource) resize(ctx context.Context, name string, capacity int64) error {
	return s.client.Configure(ctx, name, func(c *protocol.Config) { c.Capacity = capacity })
}

func (s *fleetSource) revoke(ctx context.Context, name string, lease uint64) error {
	return s.client.Revoke(ctx, name, fleet.Revocation{Lease: protocol.Seq(lease), By: operator(), Why: "sema top"})
}

// operator is who sits here, for the holder to read.
func operator() string {
	name := "somebody"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	machine, _ := os.Hostname()
	return fmt.Sprintf("%s@%s", name, cmp.Or(machine, "localhost"))
}
