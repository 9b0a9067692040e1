package sqlitestore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
)

// fill sets every field to a distinct value.
func fill(v reflect.Value, next *uint64) {
	*next++
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), next)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), next)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), next)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 70, 70)) // more than one portion, and a remainder
		for i := range v.Len() {
			fill(v.Index(i), next)
		}
	case reflect.String:
		v.SetString(fmt.Sprintf("text %d: ü\x00'\"\n", *next))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		v.SetUint(*next % 200)
	default:
		if v.CanInt() {
			v.SetInt(int64(*next))
		} else {
			v.SetUint(*next)
		}
	}
}

// TestFile_StoresAllFields fails if a field of the protocol's images is not written or
// not read.
func TestFile_StoresAllFields(t *testing.T) {
	t.Parallel()
	store := openAt(t, newFile(t), Options{})
	var want protocol.Image
	fill(reflect.ValueOf(&want).Elem(), new(uint64))
	for i := range want.Sessions {
		for k := range want.Sessions[i].Results {
			want.Sessions[i].Results[k].Fence = protocol.Fence{} // computed for each reply, not stored
		}
	}
	state, err := protocol.New(1, protocol.Config{TTL: sessiontest.TTL}, 0)
	if err != nil {
		t.Fatal(err)
	}
	k := &entry{name: "all", state: state, changes: protocol.Changes{
		Image: plain(want), Sessions: want.Sessions, Leases: want.Leases, Queue: want.Queue, Spent: want.Spent, Respent: true,
	}}
	err = store.await(ctx, &request{ctx: ctx, read: func(f *file) error {
		if err := f.begin(); err != nil {
			return err
		}
		if err := f.write(k); err != nil {
			return err
		}
		if err := f.commit(); err != nil {
			return err
		}
		got, err := f.load("all")
		if err != nil {
			return err
		}
		if !reflect.DeepEqual(got.image, want) {
			t.Errorf("stored\n%+v\nread\n%+v", want, got.image)
		}
		if !reflect.DeepEqual(got.rows, k.rows) {
			t.Errorf("rows in memory\n%+v\nin the file\n%+v", k.rows, got.rows)
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// TestFile_StoresCommonValues writes rows with equal values in the common columns, and rows of which
// the last one differs in one common column.
func TestFile_StoresCommonValues(t *testing.T) {
	t.Parallel()
	differences := map[string]func(*protocol.SessionImage, *protocol.LeaseImage){
		"nothing":   func(*protocol.SessionImage, *protocol.LeaseImage) {},
		"instance":  func(s *protocol.SessionImage, _ *protocol.LeaseImage) { s.Client.Instance = "other" },
		"host":      func(s *protocol.SessionImage, _ *protocol.LeaseImage) { s.Client.Host = "other" },
		"principal": func(s *protocol.SessionImage, _ *protocol.LeaseImage) { s.Owner.Principal = "other" },
		"recalled":  func(s *protocol.SessionImage, _ *protocol.LeaseImage) { s.Recalled = true },
		"extended":  func(s *protocol.SessionImage, _ *protocol.LeaseImage) { s.Extended = true },
		"weight":    func(_ *protocol.SessionImage, l *protocol.LeaseImage) { l.Weight = 2 },
		"pooled":    func(_ *protocol.SessionImage, l *protocol.LeaseImage) { l.Pooled = true },
		"revoked":   func(_ *protocol.SessionImage, l *protocol.LeaseImage) { l.Revoked = true },
		"slots":     func(_ *protocol.SessionImage, l *protocol.LeaseImage) { l.Slots = "7" },
		"details":   func(_ *protocol.SessionImage, l *protocol.LeaseImage) { l.Details = &protocol.Details{Holder: "other"} },
	}
	store := openAt(t, newFile(t), Options{})
	err := store.await(ctx, &request{ctx: ctx, read: func(f *file) error {
		id := int64(0)
		for name, differ := range differences {
			for _, n := range []int{1, 2, 3, 64, 66} {
				id++
				c := &protocol.Changes{}
				for i := range n {
					number := uint64(id)<<20 + uint64(i)
					c.Sessions = append(c.Sessions, protocol.SessionImage{
						ID: protocol.Session(i + 1), Client: protocol.Client{Instance: "one", Kind: "service", Host: "a", Process: 7},
						Owner: protocol.Owner{Key: protocol.NewKey(), Principal: "p"}, Seq: number, Renewal: uint64(i + 1), LastResult: number + 1,
					})
					c.Leases = append(c.Leases, protocol.LeaseImage{
						Seq: protocol.Seq(i + 1), Session: protocol.Session(i + 1), Weight: 1, Since: protocol.Micros(number), Slots: "1", Details: &protocol.Details{Holder: "h"},
					})
				}
				differ(&c.Sessions[n-1], &c.Leases[n-1])
				got := stored{rows: rows{id: id}}
				if err := errors.Join(f.writeSessions(id, c), f.writeLeases(id, c), f.readSessions(&got), f.readLeases(&got)); err != nil {
					return err
				}
				if !reflect.DeepEqual(got.image.Sessions, c.Sessions) || !reflect.DeepEqual(got.image.Leases, c.Leases) {
					t.Errorf("%d rows, in the last one differs: %s\nwrote %+v\nread  %+v\nwrote %+v\nread  %+v", n, name, c.Sessions, got.image.Sessions, c.Leases, got.image.Leases)
				}
			}
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// TestFile_MatchesMemory runs random histories, with restarts, failed commits and clock
// steps, and compares memory and file after each step.
func TestFile_MatchesMemory(t *testing.T) {
	t.Parallel()
	for _, c := range []protocol.Config{
		{Capacity: 4, TTL: sessiontest.TTL, MaxWaiters: 6},
		{Capacity: 4, TTL: sessiontest.TTL, Ramp: 1},
		{Capacity: 4, TTL: sessiontest.TTL, Numbered: true},
		{Capacity: 6, TTL: sessiontest.TTL, Kind: protocol.Rate, Window: sessiontest.TTL / 3},
	} {
		c.Protocol = protocol.Version
		t.Run(fmt.Sprintf("kind %d, ramp %d, numbered %t", c.Kind, c.Ramp, c.Numbered), func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			h := &history{t: t, path: newFile(t), config: c, now: 1_700_000_000_000_000, rng: rand.New(rand.NewPCG(seed, 0))}
			h.open()
			for range 250 {
				h.step()
				h.compare()
			}
			if err := h.store.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A history is a random history of one semaphore in a file.
type history struct {
	t        *testing.T
	rng      *rand.Rand
	path     string
	store    *Store
	config   protocol.Config
	now      protocol.Micros
	sessions []*sessiontest.Session
	ticket   protocol.Ticket
	held     []protocol.Seq
}

func (h *history) open() {
	var err error
	if h.store, err = Open(h.path, Options{Normal: true}); err != nil {
		h.t.Fatal(err)
	}
	h.store.useClock(func() protocol.Micros { return h.now })
	for _, s := range h.sessions {
		s.Store = h.store
	}
}

func (h *history) step() {
	h.now += protocol.Micros(h.rng.Int64N(int64(sessiontest.TTL / 20)))
	switch n := h.rng.IntN(60); {
	case n < 3 || len(h.sessions) == 0:
		h.begin()
	case n == 3:
		if err := h.store.Close(); err != nil {
			h.t.Fatal(err)
		}
		h.open()
	case n == 4:
		h.now += protocol.Micros(h.rng.Int64N(int64(sessiontest.TTL*20))) - sessiontest.TTL*10
	case n == 5:
		h.configure()
	case n == 6 && len(h.held) > 0:
		seq := h.held[h.rng.IntN(len(h.held))]
		h.store.Administer(ctx, "a", fleet.Command{Revoke: &fleet.Revocation{Lease: seq, AtOnce: h.rng.IntN(2) == 0, By: "a test"}})
	case n == 7 && h.rng.IntN(5) == 0:
		h.store.Administer(ctx, "a", fleet.Command{Delete: true})
	case n == 8:
		w := &h.store.shared.writer
		w.beforeCommit = func() error { w.beforeCommit = nil; return errTest }
	case n == 9: // a session sends no heartbeats from now on
		h.sessions = slices.Delete(h.sessions, 0, 1)
	default:
		h.send(h.sessions[h.rng.IntN(len(h.sessions))])
	}
}

func (h *history) begin() {
	id, _, err := h.store.Open(ctx, "a", h.config, sessiontest.Opener("history"))
	if err == nil { // otherwise the commit was made to fail
		h.sessions = append(h.sessions, sessiontest.Opened(h.t, h.store, "a", id))
	}
}

func (h *history) configure() {
	snapshot, err := h.store.Inspect(ctx, "a")
	if err != nil {
		return // deleted
	}
	c := snapshot.Config
	c.Capacity, c.Draining = h.rng.Int64N(8), h.rng.IntN(5) == 0
	h.store.Administer(ctx, "a", fleet.Command{Configure: &c})
}

func (h *history) send(s *sessiontest.Session) {
	var ops []protocol.Op
	for range h.rng.IntN(12) {
		switch n := h.rng.IntN(9); {
		case n < 4:
			h.ticket++
			ops = append(ops, protocol.Op{
				Verb: protocol.Acquire, Ticket: h.ticket, Weight: h.rng.Int64N(3) + 1, Try: n == 0, Pooled: n == 1, Least: 1,
				Wait: protocol.Micros(h.rng.Int64N(2)) * sessiontest.TTL, Details: &protocol.Details{Holder: "history", Site: []string{"a.go:1", "b.go:2"}[h.rng.IntN(2)]},
			})
		case n == 4:
			ops = append(ops, protocol.Op{Verb: protocol.Cancel, Ticket: protocol.Ticket(h.rng.Int64N(int64(h.ticket) + 1))})
		case len(h.held) == 0:
		case n == 5:
			h.ticket++
			ops = append(ops, protocol.Op{Verb: protocol.Split, Ticket: h.ticket, Lease: h.held[h.rng.IntN(len(h.held))], Weight: 1})
		case n == 6:
			h.ticket++
			ops = append(ops, protocol.Op{Verb: protocol.Settle, Ticket: h.ticket, Lease: h.held[h.rng.IntN(len(h.held))], Weight: h.rng.Int64N(5), Least: 1})
		default:
			ops = append(ops, protocol.Op{Verb: protocol.Release, Lease: h.held[h.rng.IntN(len(h.held))], Weight: h.rng.Int64N(2)})
		}
	}
	b := s.Next(ops...)
	b.End = h.rng.IntN(40) == 0
	r, err := h.store.Apply(ctx, "a", b)
	if err != nil {
		s.Seq--
		return
	}
	for _, f := range r.Results {
		if f.Kind == protocol.Granted {
			h.held = append(h.held, f.Lease)
		}
	}
	if r.Status == protocol.Unknown || b.End {
		h.sessions = slices.DeleteFunc(h.sessions, func(other *sessiontest.Session) bool { return other == s })
	}
	if h.rng.IntN(3) > 0 { // otherwise the reply was lost
		s.Receive(r)
	}
}

// compare compares the state in memory, if it is there, with the state in the file.
func (h *history) compare() {
	h.t.Helper()
	w := &h.store.shared.writer
	if k := w.entries["a"]; k != nil && k.state != nil {
		// Heartbeats are written together with other changes.
		same := k.state.Snapshot().Config
		if err := h.store.Administer(ctx, "a", fleet.Command{Configure: &same}); err != nil && !errors.Is(err, errTest) {
			h.t.Fatal(err)
		}
	}
	// On the writer's own goroutine: it may still run a checkpoint.
	if err := h.store.await(ctx, &request{ctx: ctx, read: func(f *file) error { return differs(f, w.entries["a"]) }}); err != nil && !errors.Is(err, errTest) {
		h.t.Fatal(err)
	}
}

// differs returns an error if the file differs from memory, if the semaphore is in memory.
func differs(f *file, k *entry) error {
	got, err := f.load("a")
	if err != nil || k == nil {
		return err
	}
	want := k.state.Image()
	// The passing of time alone is not written.
	want.Last, want.Clock, got.image.Last, got.image.Clock = 0, 0, 0, 0
	if normal(want) != normal(got.image) {
		return fmt.Errorf("in memory\n%+v\nin the file\n%+v", want, got.image)
	}
	load := k.state.Summary("a")
	listed, err := f.summaries("", protocol.ListQuery{}, 0)
	if err != nil || len(listed) != 1 || listed[0].InUse != load.InUse || listed[0].Leases != load.Leases || listed[0].Waiting != load.Waiting || listed[0].Sessions != load.Sessions {
		return fmt.Errorf("in memory\n%+v\nlisted\n%+v, %w", load, listed, err)
	}
	if restored, err := restore("a", got); err != nil || (restored.state == nil) != (k.state == nil) {
		return fmt.Errorf("cannot be restored: %w", err)
	}
	return nil
}

// normal formats an image, so that nil and empty lists are equal.
func normal(im protocol.Image) string { return fmt.Sprintf("%+v", im) }

// plain returns an image without its lists.
func plain(im protocol.Image) protocol.Image {
	im.Sessions, im.Leases, im.Queue, im.Spent = nil, nil, nil, nil
	return im
}

func TestFile_StoresAReusedTicket(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	store := openAt(t, path, Options{})
	config := protocol.Config{Capacity: 1, TTL: sessiontest.TTL, Protocol: protocol.Version}
	sessiontest.Begin(t, store, "db", config).Granted(1, sessiontest.Acquire(1, 1))
	waiter := sessiontest.Begin(t, store, "db", config)
	waiter.Send(sessiontest.Acquire(5, 1))
	waiter.Send(protocol.Op{Verb: protocol.Cancel, Ticket: 5}, sessiontest.Acquire(5, 1))
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if _, queue := sessiontest.Held(t, openAt(t, path, Options{}), "db"); !slices.Equal(queue, []protocol.Ticket{5}) {
		t.Errorf("queue %v, want ticket 5", queue)
	}
}
