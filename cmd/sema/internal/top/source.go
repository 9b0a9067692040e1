package top

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sema-go/sema/cmd/sema/internal/engine"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// A source is where semaphores are looked at, and changed.
type source interface {
	// look is all semaphores whose names begin so, or some if there are too many.
	look(ctx context.Context, prefix string) (view, error)
	drain(ctx context.Context, name string) error
	resume(ctx context.Context, name string) error
	resize(ctx context.Context, name string, capacity int64) error
	revoke(ctx context.Context, name string, lease uint64) error
}

// A view is what was seen at one look.
type view struct {
	semaphores []semaphore
	more       int // that were not looked at
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
	failure   string // why it could not be looked at
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
func openSource(ctx context.Context, store string) (source, error) {
	if engine.IsHost(store) {
		return openHost(store)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	opened, err := engine.OpenStore(ctx, store, engine.Reading)
	if err != nil {
		return nil, engine.Unreached(err)
	}
	client := fleet.New(opened)
	if _, err := client.List(ctx, ""); err != nil {
		engine.Close(client)
		return nil, engine.Unreached(err)
	}
	return &fleetSource{client}, nil
}

// patience is how long an engine has to answer.
const patience = 5 * time.Second

// A fleetClient is what is used of fleet.Client.
type fleetClient interface {
	List(ctx context.Context, prefix string) ([]string, error)
	Inspect(ctx context.Context, name string) (protocol.Snapshot, error)
	Ping(ctx context.Context) (time.Time, error)
	Configure(ctx context.Context, name string, change func(*protocol.Config)) error
	ForceRelease(ctx context.Context, name string, r fleet.Revocation) error
}

type fleetSource struct{ client fleetClient }

// Close lets go of the engine.
func (s *fleetSource) Close() error { return engine.Close(s.client.(*fleet.Client)) }

// A look is bounded, so that to look is no burden to the engine.
const (
	mostLooked = 500
	atATime    = 8
)

func (s *fleetSource) look(ctx context.Context, prefix string) (v view, err error) {
	names, err := s.client.List(ctx, prefix)
	if err != nil {
		return v, err
	}
	if len(names) > mostLooked {
		v.more = len(names) - mostLooked
		names = names[:mostLooked]
	}
	now := s.now(ctx)
	seen := make([]semaphore, len(names))
	turns := make(chan struct{}, atATime)
	var wg sync.WaitGroup
	for i, name := range names {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			snapshot, err := s.client.Inspect(ctx, name)
			switch {
			case errors.Is(err, fs.ErrNotExist): // it is gone meanwhile
			case err != nil:
				seen[i] = semaphore{name: name, failure: err.Error()}
			default:
				seen[i] = semaphoreOf(name, snapshot, now)
			}
		})
	}
	wg.Wait()
	v.semaphores = slices.DeleteFunc(seen, func(s semaphore) bool { return s.name == "" })
	return v, ctx.Err()
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
		name: name, capacity: s.Config.Capacity, effective: s.Effective, inUse: s.InUse, waiting: len(s.Line), draining: s.Config.Draining, ramp: s.Config.Ramp,
		window: durationOf(s.Config.Window), ttl: durationOf(s.Config.TTL),
	}
	instances := map[protocol.Session]string{}
	for _, one := range s.Sessions {
		instances[one.Session] = whoIs(one.Instance)
	}
	for _, l := range s.Leases {
		seen.holders = append(seen.holders, holder{
			lease: uint64(l.Seq), weight: l.Weight, held: max(0, now.Sub(time.UnixMicro(int64(l.Since)))), who: instances[l.Session], where: l.Meta, pooled: l.Pooled, revoked: l.Revoked,
		})
	}
	for _, t := range s.Line {
		seen.line = append(seen.line, waiter{t.Weight, instances[t.Session], t.Meta})
	}
	return seen
}

func durationOf(m protocol.Micros) time.Duration { return time.Duration(m) * time.Microsecond }

// whoIs is an instance without what tells clients of one process apart.
func whoIs(instance string) string {
	if parts := strings.Split(instance, "/"); len(parts) == 3 {
		return parts[0] + "/" + parts[1]
	}
	return instance
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
	return s.client.ForceRelease(ctx, name, fleet.Revocation{Lease: protocol.Seq(lease), By: operator(), Why: "sema top"})
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
