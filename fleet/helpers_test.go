package fleet_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// A link passes calls on to a store. It can delay or cut them, and counts batches.
type link struct {
	fleet.Store
	delay       time.Duration
	cut         atomic.Bool
	loseReplies atomic.Bool
	batches     atomic.Int64
	ops         atomic.Int64
}

var errCut = errors.New("cut off")

func (l *link) pass(ctx context.Context) error {
	if l.cut.Load() {
		<-ctx.Done()
		return errCut
	}
	time.Sleep(l.delay)
	return nil
}

func (l *link) Open(ctx context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	if err := l.pass(ctx); err != nil {
		return 0, protocol.Config{}, err
	}
	return l.Store.Open(ctx, name, c, by)
}

func (l *link) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	if err := l.pass(ctx); err != nil {
		return protocol.Reply{}, err
	}
	l.batches.Add(1)
	l.ops.Add(int64(len(b.Ops)))
	reply, err := l.Store.Apply(ctx, name, b)
	if l.loseReplies.Load() {
		<-ctx.Done()
		return protocol.Reply{}, errCut
	}
	return reply, err
}

func (l *link) Listen(ctx context.Context, instance string, notify func(string)) error {
	return l.Store.Listen(ctx, instance, func(name string) {
		if !l.cut.Load() {
			notify(name)
		}
	})
}

// newClient returns a client of a store, which is closed when the test ends.
func newClient(t *testing.T, store fleet.Store) (*fleet.Client, *link) {
	t.Helper()
	l := &link{Store: store}
	c := fleet.New(l)
	c.UseBubbleClock()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		c.Close(ctx)
	})
	return c, l
}

// A spec contains the arguments of Client.Semaphore, except for the name.
type spec struct {
	capacity int64
	opts     []fleet.Option
}

func of(capacity int64, opts ...fleet.Option) spec { return spec{capacity, opts} }

// with returns the spec with more options.
func (s spec) with(opts ...fleet.Option) spec { return of(s.capacity, slices.Concat(s.opts, opts)...) }

func semaphore(t *testing.T, c *fleet.Client, o spec) *fleet.Semaphore {
	t.Helper()
	s, err := c.Semaphore("db", o.capacity, o.opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// setStored changes the stored configuration, including fields that clients do not change.
func setStored(t *testing.T, store fleet.Store, change func(*protocol.Config)) {
	t.Helper()
	stored, err := store.Inspect(t.Context(), "db")
	wantErr(t, err, nil)
	change(&stored.Config)
	wantErr(t, store.Administer(t.Context(), "db", fleet.Command{Configure: &stored.Config}), nil)
}

func mustAcquire(t *testing.T, g sema.Gate, n int64) sema.Permit {
	t.Helper()
	p, err := g.Acquire(context.Background(), n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

// inUse returns the permits in use and the number of waiters, as stored.
func inUse(t *testing.T, store fleet.Store) (used int64, waiting int) {
	t.Helper()
	s, err := store.Inspect(context.Background(), "db")
	if err != nil {
		t.Fatal(err)
	}
	return s.InUse, len(s.Queue)
}
