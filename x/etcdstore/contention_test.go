//go:build unix

package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/proctest"
	"github.com/sema-go/sema/internal/storetest/etcdtest"
)

func init() { roles["contend"], roles["mutexes"] = contend, contendByKeys }

// shareCounter maps a file that has a counter into memory, to share it with processes.
func shareCounter(path string) (*guarded, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(4096); err != nil {
		return nil, err
	}
	memory, err := syscall.Mmap(int(f.Fd()), 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return (*guarded)(unsafe.Pointer(&memory[0])), nil
}

// A workload has the arguments of the processes that contend.
type workload struct {
	members  string // of the cluster
	counter  string // the file of the counter
	capacity int64
	callers  int
	hold     time.Duration
	combines bool
	skew     time.Duration // of the wall clock
}

func (r workload) arguments() []string {
	return []string{
		r.members, r.counter, strconv.FormatInt(r.capacity, 10), strconv.Itoa(r.callers), r.hold.String(),
		strconv.FormatBool(r.combines), r.skew.String(),
	}
}

func parseWorkload(c *proctest.Child) (r workload) {
	var err [5]error
	r.members, r.counter = c.Args[0], c.Args[1]
	r.capacity, err[0] = strconv.ParseInt(c.Args[2], 10, 64)
	r.callers, err[1] = strconv.Atoi(c.Args[3])
	r.hold, err[2] = time.ParseDuration(c.Args[4])
	r.combines, err[3] = strconv.ParseBool(c.Args[5])
	r.skew, err[4] = time.ParseDuration(c.Args[6])
	c.Must(errors.Join(err[:]...))
	return r
}

// enough is how often a process has to be served.
const enough = 10

// contend acquires and releases until it receives a message to stop, and sends its counts.
func contend(c *proctest.Child) {
	r := parseWorkload(c)
	counter, err := shareCounter(r.counter)
	c.Must(err)
	store, err := Open(ctx, Options{Endpoints: strings.Split(r.members, ","), Prefix: r.counter + "/"})
	c.Must(err)
	store.combines = r.combines
	wall := store.clock.wall
	store.clock.wall = func() protocol.Micros { return wall() + protocol.Micros(r.skew.Microseconds()) }
	client := fleet.New(store)
	s, err := client.Semaphore("contended", r.capacity, fleet.TTL(6*time.Second))
	c.Must(err)
	life, stop := context.WithCancel(context.Background())
	var pairs, lost, worst atomic.Int64
	var wg sync.WaitGroup
	c.Send("ready")
	c.Receive()
	for range r.callers {
		wg.Go(func() {
			for life.Err() == nil {
				began := time.Now()
				p, err := s.Acquire(life, 1)
				if err != nil {
					if life.Err() == nil && !errors.Is(err, sema.ErrUnavailable) {
						c.Must(err)
					}
					continue
				}
				worst.Store(max(worst.Load(), int64(time.Since(began))))
				counter.enter(r.capacity)
				if r.hold > 0 {
					time.Sleep(r.hold/2 + rand.N(r.hold))
				}
				counter.leave()
				if p.Err() != nil {
					lost.Add(1)
				}
				p.Release()
				pairs.Add(1)
			}
		})
	}
	c.Receive()
	// A busy machine gets some more time to do enough.
	for late := time.Now().Add(time.Minute); pairs.Load() < enough && time.Now().Before(late); {
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	wg.Wait()
	c.Must(client.Close(context.Background()))
	c.Send("%d %d %d %d %d %d", pairs.Load(), lost.Load(), worst.Load(), store.counts.transactions.Load(), store.counts.writes.Load(), store.counts.conflicts.Load())
}

// contendByKeys does what a semaphore of ordered keys would have to do at least: each
// acquire puts a key and each release deletes it, here even without other waiters.
func contendByKeys(c *proctest.Child) {
	r := parseWorkload(c)
	client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(r.members, ","), Logger: zap.NewNop()})
	c.Must(err)
	session, err := concurrency.NewSession(client)
	c.Must(err)
	var pairs, stopped atomic.Int64
	var wg sync.WaitGroup
	c.Send("ready")
	c.Receive()
	for i := range r.callers {
		m := concurrency.NewMutex(session, fmt.Sprintf("mutex/%d/%d", os.Getpid(), i))
		wg.Go(func() {
			for stopped.Load() == 0 {
				c.Must(m.Lock(context.Background()))
				c.Must(m.Unlock(context.Background()))
				pairs.Add(1)
			}
		})
	}
	c.Receive()
	stopped.Store(1)
	wg.Wait()
	c.Send("%d 0 0 0 0 0", pairs.Load())
}

// A loadReport is the sum of the counts of all processes.
type loadReport struct {
	pairs, lost, transactions, writes, conflicts int64
	worst                                        time.Duration
	each                                         []int64
}

// run makes processes contend while meanwhile runs.
func (r workload) run(t testing.TB, skews []time.Duration, meanwhile func()) (sum loadReport) {
	t.Helper()
	return r.runAs(t, "contend", skews, meanwhile)
}

func (r workload) runAs(t testing.TB, role string, skews []time.Duration, meanwhile func()) (sum loadReport) {
	t.Helper()
	r.counter = filepath.Join(t.TempDir(), "counter")
	counter, err := shareCounter(r.counter)
	if err != nil {
		t.Fatal(err)
	}
	var processes []*proctest.Process
	for _, skew := range skews {
		r.skew = skew
		processes = append(processes, proctest.Start(t, role, r.arguments()...))
	}
	for _, p := range processes {
		p.Expect("ready")
	}
	for _, p := range processes {
		p.Send("go")
	}
	meanwhile()
	for _, p := range processes {
		p.Send("stop")
	}
	for _, p := range processes {
		var one loadReport
		if _, err := fmt.Sscan(p.Receive(), &one.pairs, &one.lost, &one.worst, &one.transactions, &one.writes, &one.conflicts); err != nil {
			t.Fatal(err)
		}
		sum.pairs, sum.lost = sum.pairs+one.pairs, sum.lost+one.lost
		sum.transactions, sum.writes, sum.conflicts = sum.transactions+one.transactions, sum.writes+one.writes, sum.conflicts+one.conflicts
		sum.worst = max(sum.worst, one.worst)
		sum.each = append(sum.each, one.pairs)
	}
	if over := counter.over.Load(); over > 0 {
		t.Errorf("more than %d were held %d times; up to %d", r.capacity, over, counter.most.Load())
	}
	if n := counter.inside.Load(); n != 0 {
		t.Errorf("%d are still held in the end", n)
	}
	return sum
}

var four = []time.Duration{0, 0, 0, 0}

// BenchmarkFourProcesses runs 4 × 64 goroutines on one semaphore, with batches of other
// processes combined and without, and on as many of etcd's mutexes.
func BenchmarkFourProcesses(b *testing.B) {
	server := etcdtest.Start(b, 1)
	const lasts = 3 * time.Second
	for _, load := range []workload{{capacity: 1000, callers: 64}, {capacity: 8, callers: 64, hold: 5 * time.Millisecond}} {
		load.members = strings.Join(server.Addresses(), ",")
		for _, load.combines = range []bool{false, true} {
			b.Run(fmt.Sprintf("capacity=%d/shared=%t", load.capacity, load.combines), func(b *testing.B) {
				r := load.run(b, four, func() { time.Sleep(lasts) })
				b.ReportMetric(float64(r.pairs)/lasts.Seconds(), "pairs/s")
				b.ReportMetric(float64(r.transactions)/lasts.Seconds(), "txns/s")
				b.ReportMetric(float64(r.writes)/lasts.Seconds(), "writes/s")
				b.ReportMetric(float64(r.conflicts)/lasts.Seconds(), "conflicts/s")
				b.ReportMetric(r.worst.Seconds()*1000, "worst-ms")
			})
		}
	}
	b.Run("concurrency.Mutex", func(b *testing.B) {
		load := workload{members: strings.Join(server.Addresses(), ","), callers: 64}
		r := load.runAs(b, "mutexes", four, func() { time.Sleep(lasts) })
		b.ReportMetric(float64(r.pairs)/lasts.Seconds(), "pairs/s")
	})
}
