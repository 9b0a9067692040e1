package pgstore

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
)

// TestApply_MatchesTheModelForLargeBatches covers what fleettest does not: batches of
// dozens of ops, queues longer than the store reads at a time, tickets and leases that are
// named more than once. With the clock stopped both number everything alike, so the
// replies must be identical.
func TestApply_MatchesTheModelForLargeBatches(t *testing.T) {
	t.Parallel()
	for i := range max(8, *histories/100) {
		seed := rand.Uint64()
		if err := compareWithModel(t, fmt.Sprint("h", i), rand.New(rand.NewPCG(seed, 1))); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// A comparison has a store and the model, to which the same operations are applied.
type comparison struct {
	store   clocked
	name    string
	model   *protocol.State
	now     time.Time
	random  *rand.Rand
	members []*member
	leases  []protocol.Seq

	notifications map[protocol.Session]int64
}

type member struct {
	id       protocol.Session
	owner    protocol.Owner
	seq, ack uint64
	ticket   protocol.Ticket
	last     protocol.Batch
}

func compareWithModel(t *testing.T, name string, random *rand.Rand) error {
	l := &comparison{store: openClocked(t).(clocked), name: name, random: random, now: time.Now().Truncate(time.Microsecond)}
	defer l.store.Close()
	config := protocol.Config{
		Capacity: []int64{1, 5, 40, 100, 1000}[random.IntN(5)], TTL: sessiontest.TTL, Protocol: protocol.Version,
		MaxWaiters: []int64{0, 0, 0, 20, protocol.NoWaiters}[random.IntN(5)], Ramp: []int64{0, 0, 0, 7}[random.IntN(4)],
	}
	switch random.IntN(5) {
	case 0:
		config.Kind, config.Window = protocol.Rate, sessiontest.TTL/3
	case 1:
		config.Numbered = true
	}
	l.store.SetClock(l.now)
	var err error
	if l.model, err = protocol.New(l.micros(), config, 0); err != nil {
		return err
	}
	for range 3 {
		if err := l.open(config); err != nil {
			return err
		}
	}
	plain := random.IntN(3) == 0 // all batches are plain; otherwise some are
	for step := range 40 {
		if err := l.step(plain || random.IntN(2) == 0); err != nil {
			return fmt.Errorf("step %d of %+v: %w", step, config, err)
		}
		if err := errors.Join(l.model.Check(), l.compareWoken()); err != nil {
			return fmt.Errorf("step %d of %+v: %w", step, config, err)
		}
	}
	return nil
}

// compareWoken compares the sessions that were notified since the last call.
func (l *comparison) compareWoken() error {
	rows, err := l.store.pool.Query(ctx, "SELECT id, notifications, delivered FROM "+l.store.options.Schema+".session ORDER BY id")
	if err != nil {
		return err
	}
	var (
		id, notifications, delivered int64
		got, want                    []protocol.Session
		counts                       = map[protocol.Session]int64{}
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &notifications, &delivered}, func() error {
		counts[protocol.Session(id)] = notifications
		if notifications > max(delivered, l.notifications[protocol.Session(id)]) {
			got = append(got, protocol.Session(id))
		}
		return nil
	})
	if err != nil {
		return err
	}
	l.notifications = counts
	for _, id := range slices.Sorted(slices.Values(l.model.Woken())) {
		if l.model.Instance(id) != "" {
			want = append(want, id)
		}
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("notified: %v, in the model %v", got, want)
	}
	return nil
}

func (l *comparison) micros() protocol.Micros { return protocol.Micros(l.now.UnixMicro()) }

func (l *comparison) open(c protocol.Config) error {
	by := sessiontest.Opener(fmt.Sprint("instance ", len(l.members)))
	by.Owner.Principal = []string{"", "token:a", "\x00\xff"}[len(l.members)%3]
	if len(l.leases) > 0 && len(l.members)%3 == 0 {
		by.Highest = l.highest() + 7
	}
	want, _, wrong := l.model.Open(l.micros(), by, c.Protocol)
	got, _, err := l.store.Open(ctx, l.name, c, by)
	if err != nil || wrong != nil || got != want {
		return fmt.Errorf("opened %d, %w; want %d, %w", got, err, want, wrong)
	}
	l.members = append(l.members, &member{id: got, owner: by.Owner})
	return nil
}

func (l *comparison) step(plain bool) error {
	m := l.members[l.random.IntN(len(l.members))]
	switch l.random.IntN(14) {
	case 0:
		l.now = l.now.Add(l.pause())
		l.store.SetClock(l.now)
		return nil
	case 1:
		return l.configure()
	case 2:
		return l.revoke()
	case 3:
		return l.compareState()
	case 4:
		return l.open(l.model.Snapshot().Config)
	case 5:
		return l.apply(m, m.last) // again
	}
	m.seq++
	b := protocol.Batch{Owner: m.owner, Session: m.id, Seq: m.seq, Ack: m.ack - min(m.ack, uint64(l.random.IntN(3))), End: l.random.IntN(40) == 0}
	for range l.random.IntN(90) {
		b.Ops = append(b.Ops, l.op(m, plain))
	}
	switch l.random.IntN(12) {
	case 0:
		b.Highest = l.highest() + 500
		return l.apply(m, asAnother(b, l.random.IntN(3))) // and the next batch has a higher Seq
	case 1:
		b.Highest = []protocol.Seq{1, l.highest() + 500, l.highest() + 3*protocol.MaxLead, 1 << 63, math.MaxUint64}[l.random.IntN(5)]
	}
	m.last = b
	return l.apply(m, b)
}

// pause returns a time that is mostly shorter than a heartbeat. Sometimes the clock steps
// back, or nothing happens for an hour.
func (l *comparison) pause() time.Duration {
	switch l.random.IntN(8) {
	case 0:
		return -time.Duration(l.random.IntN(20_000)) * time.Millisecond
	case 1:
		return time.Hour
	}
	return time.Duration(l.random.IntN(4000)) * time.Millisecond
}

// asAnother returns the batch with another owner.
func asAnother(b protocol.Batch, how int) protocol.Batch {
	switch how {
	case 0:
		b.Owner.Key[15] ^= 1
	case 1:
		b.Owner.Key = protocol.Key{}
	default:
		b.Owner.Principal += " "
	}
	return b
}

// highest returns the last lease that was granted.
func (l *comparison) highest() (seq protocol.Seq) {
	for _, lease := range l.leases {
		seq = max(seq, lease)
	}
	return seq
}

func (l *comparison) op(m *member, plain bool) protocol.Op {
	what := l.random.IntN(13)
	if plain && what >= 9 {
		what = l.random.IntN(9)
	}
	switch {
	case what < 5 || len(l.leases) == 0:
		m.ticket++
		op := protocol.Op{Verb: protocol.Acquire, Ticket: m.ticket, Weight: 1 + l.random.Int64N(3), Details: &protocol.Details{Holder: fmt.Sprint("m", m.ticket)}}
		if plain {
			return op
		}
		switch l.random.IntN(8) {
		case 0:
			op.Try = true
		case 1:
			op.Pooled, op.Weight, op.Least = true, 1+l.random.Int64N(30), l.random.Int64N(5)
		case 2:
			op.Wait = protocol.Micros(l.random.Int64N(int64(sessiontest.TTL / 2)))
		case 3:
			op.Ticket = max(1, m.ticket-protocol.Ticket(l.random.IntN(4))) // named twice
		case 4:
			op.Weight = []int64{0, -1, 200, protocol.MaxCapacity}[l.random.IntN(4)]
		}
		return op
	case what < 9:
		op := sessiontest.Release(l.lease())
		if !plain && l.random.IntN(4) == 0 {
			op.Weight = l.random.Int64N(4) - 1
		}
		return op
	case what == 9:
		return protocol.Op{Verb: protocol.Cancel, Ticket: max(1, m.ticket-protocol.Ticket(l.random.IntN(30)))}
	case what == 10:
		m.ticket++
		return protocol.Op{Verb: protocol.Split, Ticket: m.ticket, Lease: l.lease(), Weight: l.random.Int64N(3)}
	case what == 11:
		return protocol.Op{Verb: protocol.Settle, Ticket: m.ticket, Lease: l.lease() + protocol.Seq(l.random.IntN(2)), Weight: l.random.Int64N(6) - 1, Least: l.random.Int64N(4) - 1}
	default:
		return protocol.Op{Verb: 99, Ticket: 7}
	}
}

// lease returns one of the last leases that were granted.
func (l *comparison) lease() protocol.Seq {
	return l.leases[len(l.leases)-1-l.random.IntN(min(len(l.leases), 100))]
}

func (l *comparison) apply(m *member, b protocol.Batch) error {
	if b.Session == 0 {
		return nil
	}
	got, err := l.store.Apply(ctx, l.name, b)
	if err != nil {
		return err
	}
	want := l.model.Apply(l.micros(), b)
	if len(got.Results) == 0 && len(want.Results) == 0 {
		got.Results, want.Results = nil, nil
	}
	for _, results := range [][]protocol.Result{got.Results, want.Results} {
		for i := range results {
			if len(results[i].Fence.Revoked) == 0 {
				results[i].Fence.Revoked = nil
			}
		}
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("batch %+v\nstore %+v\nmodel %+v", b, got, want)
	}
	for _, f := range got.Results {
		m.ack = max(m.ack, f.N)
		if f.Kind == protocol.Granted {
			l.leases = append(l.leases, f.Lease)
		}
	}
	return nil
}

func (l *comparison) configure() error {
	c := l.model.Snapshot().Config
	c.Capacity = l.random.Int64N(60)
	c.Draining = l.random.IntN(6) == 0
	c.MaxWaiters = []int64{c.MaxWaiters, c.MaxWaiters, 0, protocol.NoWaiters}[l.random.IntN(4)]
	_, want := l.model.Configure(l.micros(), c)
	got := l.store.Administer(ctx, l.name, fleet.Command{Configure: &c})
	if (got == nil) != (want == nil) {
		return fmt.Errorf("configured: %w, want %w", got, want)
	}
	return nil
}

func (l *comparison) revoke() error {
	if len(l.leases) == 0 {
		return nil
	}
	r := &fleet.Revocation{Lease: l.lease(), AtOnce: l.random.IntN(2) == 0, By: "operator"}
	want := l.model.Revoke(l.micros(), r.Lease, r.AtOnce, r.Note())
	if got := l.store.Administer(ctx, l.name, fleet.Command{Revoke: r}); (got == nil) != want {
		return fmt.Errorf("revoked: %w, want %t", got, want)
	}
	return nil
}

// compareState compares the whole state, and the sums of the tables with their rows.
func (l *comparison) compareState() error {
	got, err := l.store.Inspect(ctx, l.name)
	if err != nil {
		return err
	}
	if want := l.model.Inspect(l.micros()); !reflect.DeepEqual(got, want) {
		return fmt.Errorf("store %+v\nmodel %+v", got, want)
	}
	return errors.Join(l.list(), checkSums(l.store.Store))
}

// list compares the summary with that of the model, whose clock Inspect has advanced.
func (l *comparison) list() error {
	got, err := l.store.List(ctx, protocol.ListQuery{})
	if err != nil {
		return err
	}
	if want := l.model.Summary(l.name); len(got) != 1 || got[0] != want {
		return fmt.Errorf("listed %+v\nthe model has %+v", got, want)
	}
	return nil
}

// checkSums fails if the sums that are stored with the rows differ from the rows.
func checkSums(s *Store) error {
	var wrong []string
	err := s.pool.QueryRow(ctx, fmt.Sprintf(`SELECT coalesce(array_agg(x::text), '{}') FROM (
		SELECT s.name, s.in_use, s.leases, s.sessions, s.waiting, s.wanted, s.pools, s.recalled,
			l.n, l.weight, o.n, o.pools, o.recalled, t.n, t.least, o.waiting, t.first, s.first_place, o.oldest, s.oldest_deadline
		FROM %[1]s.semaphore s,
		LATERAL (SELECT count(*) n, coalesce(sum(weight), 0) weight, min(seq) lowest FROM %[1]s.lease l WHERE l.semaphore = s.id) l,
		LATERAL (SELECT coalesce(sum(weight), 0) weight, min(seq) lowest FROM %[1]s.spending x WHERE x.semaphore = s.id) x,
		LATERAL (SELECT length(replace(s.slots_in_use::text, '0', '')) n) b,
		LATERAL (SELECT count(*) n, count(*) FILTER (WHERE pooled > 0 AND NOT recalled) pools, count(*) FILTER (WHERE recalled) recalled,
			coalesce(sum(waiting), 0) waiting, min(deadline) oldest FROM %[1]s.session o WHERE o.semaphore = s.id) o,
		LATERAL (SELECT count(*) n, coalesce(sum(least), 0) least, min(place) first FROM %[1]s.ticket t WHERE t.semaphore = s.id) t
		WHERE (s.in_use, s.leases, s.sessions, s.waiting, s.wanted, s.pools, s.recalled, s.waiting)
			IS DISTINCT FROM (l.weight + x.weight, l.n, o.n, t.n, t.least, o.pools, o.recalled, o.waiting)
			OR s.first_place IS NOT NULL AND s.first_place IS DISTINCT FROM t.first OR t.first <= s.served OR l.lowest < s.floor OR x.lowest < s.floor OR o.oldest < s.oldest_deadline
			OR s.numbered AND b.n <> l.weight
			OR EXISTS (SELECT FROM %[1]s.lease l, unnest(string_to_array(l.slots, ',')) p,
				generate_series(split_part(p, '-', 1)::integer, split_part(p || '-' || p, '-', 2)::integer) n
				WHERE l.semaphore = s.id AND get_bit(s.slots_in_use, n) = 0)
	) x`, s.options.Schema)).Scan(&wrong)
	if err == nil && len(wrong) > 0 {
		err = errors.New(fmt.Sprint("the sums differ from the rows: ", wrong))
	}
	return err
}

// TestApply_EndsExpiredSessionsInPortions opens forty sessions, of which one is renewed.
func TestApply_EndsExpiredSessionsInPortions(t *testing.T) {
	t.Parallel()
	l := &comparison{store: openClocked(t).(clocked), name: "a", now: time.Now().Truncate(time.Microsecond)}
	l.store.SetClock(l.now)
	config := protocol.Config{Capacity: 5, TTL: sessiontest.TTL, Protocol: protocol.Version}
	var err error
	if l.model, err = protocol.New(l.micros(), config, 0); err != nil {
		t.Fatal(err)
	}
	send := func(m *member, ops ...protocol.Op) {
		t.Helper()
		m.seq++
		if err := l.apply(m, protocol.Batch{Owner: m.owner, Session: m.id, Seq: m.seq, Ack: m.ack, Ops: ops}); err != nil {
			t.Fatal(err)
		}
	}
	for range 40 {
		if err := l.open(config); err != nil {
			t.Fatal(err)
		}
		send(l.members[len(l.members)-1], sessiontest.Acquire(1, 1))
	}
	living := l.members[20]
	for i := range 16 {
		if i < 9 { // then no time passes, and the remaining sessions are ended
			l.now = l.now.Add(time.Duration(sessiontest.TTL/6) * time.Microsecond)
			l.store.SetClock(l.now)
		}
		send(living)
		if err := errors.Join(l.compareWoken(), l.compareState()); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
}
