package sqlitestore

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
)

// loads are the configurations of the benchmarks. In each, 256 goroutines acquire and
// release one permit of one semaphore, through one client.
var loads = []struct {
	name     string
	normal   bool
	capacity int64
}{
	{"full/free", false, 1000}, {"full/queued", false, 16}, {"normal/free", true, 1000}, {"normal/queued", true, 16},
}

// BenchmarkPairs measures pairs of an acquire and its release.
func BenchmarkPairs(b *testing.B) {
	for _, load := range loads {
		b.Run(load.name, func(b *testing.B) {
			store := openAt(b, newFile(b), Options{Normal: load.normal})
			pairs(b, store, load.capacity)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
			b.ReportMetric(float64(b.N)/float64(store.shared.writer.commits), "pairs/commit")
		})
	}
}

// BenchmarkSessions measures pairs of 64 sessions, each with a batch for each operation, as a service
// sends them for requests over JSON. Requests do not wait for the disk.
func BenchmarkSessions(b *testing.B) {
	store := openAt(b, newFile(b), Options{Normal: true})
	var left atomic.Int64
	left.Store(int64(b.N))
	sessions := make([]*sessiontest.Session, 64)
	for i := range sessions {
		sessions[i] = sessiontest.Begin(b, store, "sessions", protocol.Config{Capacity: 1000})
	}
	var wg sync.WaitGroup
	b.ResetTimer()
	for _, session := range sessions {
		wg.Go(func() {
			for ticket := protocol.Ticket(1); left.Add(-1) >= 0; ticket++ {
				session.Send(sessiontest.Release(session.Granted(1, sessiontest.Acquire(ticket, 1))[0]))
			}
		})
	}
	wg.Wait()
}

// BenchmarkRawPairs measures SQLite alone. It writes the rows that such a load wrote, in
// the same transactions, row by row with prepared statements.
func BenchmarkRawPairs(b *testing.B) {
	for _, load := range loads {
		b.Run(load.name, func(b *testing.B) {
			var recorded []protocol.Changes
			store := openAt(b, newFile(b), Options{Normal: load.normal})
			w := &store.shared.writer
			w.beforeCommit = func() error {
				for _, k := range w.touched {
					recorded = append(recorded, k.changes)
				}
				return nil
			}
			pairs(b, store, load.capacity)
			f, err := openFile(newFile(b), load.normal, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { f.close() })
			raw := newRaw(f)
			b.ResetTimer()
			b.StartTimer()
			for i := range recorded {
				if err := raw.write(f, &recorded[i]); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
		})
	}
}

// pairs acquires and releases b.N times.
func pairs(b *testing.B, store *Store, capacity int64) {
	client := fleet.New(store)
	s, err := client.Semaphore("pairs", capacity)
	if err != nil {
		b.Fatal(err)
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var wg sync.WaitGroup
	for range 256 {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				p, err := s.Acquire(context.Background(), 1)
				if err != nil {
					b.Error(err)
					return
				}
				p.Release()
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	if err := client.Close(context.Background()); err != nil {
		b.Error(err)
	}
}

// raw contains statements for one row each.
type raw struct{ semaphore, session, lease, drop, ticket, leave *statement }

func newRaw(f *file) raw {
	return raw{
		semaphore: f.statement("INSERT OR REPLACE INTO semaphore VALUES (1, 'pairs', ?, 0, 0, ?, ?, ?, ?, ?, 0, 0, 0, 0)"),
		session:   f.statement("INSERT OR REPLACE INTO session VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"),
		lease:     f.statement("INSERT INTO lease VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?)"),
		drop:      f.statement("DELETE FROM lease WHERE semaphore = 1 AND seq = ?"),
		ticket:    f.statement("INSERT INTO ticket VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?)"),
		leave:     f.statement("DELETE FROM ticket WHERE semaphore = 1 AND session = ? AND id = ?"),
	}
}

func (r raw) write(f *file, c *protocol.Changes) (err error) {
	exec := func(s *statement, v ...driver.Value) {
		if err == nil {
			_, err = s.exec(values{}.with(v...))
		}
	}
	exec(f.statements.begin)
	config, _ := json.Marshal(c.Image.Config)
	exec(r.semaphore, string(config), int64(c.Image.Last), int64(c.Image.Clock), int64(c.Image.LastSession), int64(c.Image.LastSeq), int64(c.Image.Renewals))
	for _, s := range c.Sessions {
		results, _ := encodeResults(s.Results)
		exec(r.session, int64(s.ID), s.Client.Instance, s.Client.Encode(), s.Owner.Key.Hex(), s.Owner.Principal, int64(s.Seq), int64(s.Deadline), int64(s.Renewed), int64(s.Renewal),
			int64(s.LastResult), s.Recalled, s.Extended, results)
	}
	for _, seq := range c.Dropped {
		exec(r.drop, int64(seq))
	}
	for _, l := range c.Leases {
		exec(r.lease, int64(l.Seq), int64(l.Session), l.Weight, l.Pooled, l.Revoked, int64(l.Since), string(l.Slots), l.Details.Encode())
	}
	for _, t := range c.Left {
		exec(r.leave, int64(t.Session), int64(t.Ticket))
	}
	for _, t := range c.Queue {
		exec(r.ticket, int64(t.Session), int64(t.Ticket), int64(t.Ticket), t.Weight, t.Least, int64(t.Until), t.Pooled, int64(t.Since), t.Details.Encode())
	}
	exec(f.statements.commit)
	return err
}

// BenchmarkAcquire_WhileListing measures pairs of one caller after a restart, while another one
// lists all of many semaphores again and again, as a service does for its metrics.
func BenchmarkAcquire_WhileListing(b *testing.B) {
	const semaphores = 30_000
	path := newFile(b)
	store := openAt(b, path, Options{Normal: true})
	var wg sync.WaitGroup
	for from := range 100 {
		wg.Go(func() {
			for i := from; i < semaphores; i += 100 {
				sessiontest.Begin(b, store, fmt.Sprintf("s%06d", i), protocol.Config{Capacity: 10})
			}
		})
	}
	wg.Wait()
	if err := store.Close(); err != nil {
		b.Fatal(err)
	}
	store = openAt(b, path, Options{Normal: true})
	listing, stop := context.WithCancel(ctx)
	wg.Go(func() {
		for q := (protocol.ListQuery{}); listing.Err() == nil; {
			page, err := store.List(ctx, q)
			if err != nil {
				b.Error(err)
				return
			}
			if q.After = ""; len(page) == q.Most() {
				q.After = page[len(page)-1].Name
			}
		}
	})
	session := sessiontest.Begin(b, store, "x", protocol.Config{Capacity: 10})
	took := make([]time.Duration, 0, b.N)
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		session.Send(sessiontest.Release(session.Granted(1, sessiontest.Acquire(protocol.Ticket(i+1), 1))[0]))
		took = append(took, time.Since(start))
	}
	stop()
	wg.Wait()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}
