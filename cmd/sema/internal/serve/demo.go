package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/x/server"
)

// demoStore is the store of a demonstration, unless the user chooses one: memory, so that nothing of
// it stays.
const demoStore = "mem://"

// A demoLoad is the traffic of one semaphore of the demonstration: workers that acquire, hold for a
// random time, release and pause. Pauses bound the rate: all loads together acquire less than 200
// permits a second.
type demoLoad struct {
	name     string
	capacity int64
	window   time.Duration // of a rate; 0: not a rate
	workers  int
	hold     time.Duration // mean
	pause    time.Duration // mean
	jobs     string        // labels of the workers, in turn
	holders  string        // programs that call the JSON API, in turn; "": Go clients
	wait     time.Duration // of programs; 0: they do not wait. Go clients do
}

var demoLoads = []demoLoad{
	{name: "db/main", capacity: 12, workers: 18, hold: 350 * time.Millisecond, pause: 250 * time.Millisecond, jobs: "checkout cart search"},
	{name: "db/replica", capacity: 24, workers: 9, hold: 250 * time.Millisecond, pause: 350 * time.Millisecond, jobs: "search"},
	{name: "gpu", capacity: 4, workers: 4, hold: 3 * time.Second, pause: time.Second, jobs: "inference training evaluation"},
	{name: "gpu", capacity: 4, workers: 3, hold: 3 * time.Second, pause: time.Second, holders: "notebook-1 notebook-2 nightly-eval", wait: 8 * time.Second},
	{name: "jobs:import", capacity: 3, workers: 4, hold: 2 * time.Second, pause: 2 * time.Second, jobs: "nightly"},
	{name: "jobs:export", capacity: 6, workers: 3, hold: time.Second, pause: 2 * time.Second, jobs: "nightly"},
	{name: "jobs:report", capacity: 4, workers: 2, hold: 400 * time.Millisecond, pause: 900 * time.Millisecond, jobs: "billing"},
	{name: "mail/send", capacity: 8, workers: 6, hold: 500 * time.Millisecond, pause: 800 * time.Millisecond, jobs: "mailer"},
	{name: "tenant:acme", capacity: 5, workers: 6, hold: 300 * time.Millisecond, pause: 400 * time.Millisecond, jobs: "api"},
	{name: "tenant:globex", capacity: 5, workers: 3, hold: 300 * time.Millisecond, pause: 600 * time.Millisecond, jobs: "api"},
	{name: "tenant:initech", capacity: 5, workers: 1, hold: 300 * time.Millisecond, pause: 3 * time.Second, jobs: "api"},
	{name: "api/search", capacity: 6, workers: 9, hold: 400 * time.Millisecond, pause: 350 * time.Millisecond, holders: "web-1 web-2 web-3"},
	{name: "upstream/payments", capacity: 10, window: 2 * time.Second, workers: 3, pause: 400 * time.Millisecond, jobs: "checkout"},
}

// The load that leaks: one lease is held for demoLeak, and after a pause another one.
const (
	demoLeaking = "jobs:report"
	demoLeak    = 3 * time.Minute
)

// The semaphore that is drained for a while, again and again.
const (
	demoDraining   = "mail/send"
	demoDrainEvery = 50 * time.Second
	demoDrainFor   = 12 * time.Second
)

// demoDeclarations declares the semaphores of the demonstration.
func demoDeclarations() (all []server.Declaration) {
	for _, l := range demoLoads {
		one := server.Declaration{Name: l.name, Capacity: l.capacity, Window: l.window}
		if !slices.Contains(all, one) { // a semaphore may have several loads
			all = append(all, one)
		}
	}
	return append(all, server.Declaration{Name: "batch/backfill", Capacity: 16}) // declared, and never used
}

// checkDemo fails for settings with which the demonstration cannot call its own server.
func (c Config) checkDemo() error {
	if c.Demo && (len(c.Tokens) > 0 || c.TLS.Cert != "") {
		return fmt.Errorf("--demo: the demonstration has no token and no certificate; remove those of the configuration")
	}
	return nil
}

// demonstrate drives traffic through the server at an address until ctx ends. It is an ordinary
// client of the server: most of it in Go, a part over JSON.
func demonstrate(ctx context.Context, at net.Addr) error {
	_, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return err
	}
	var work sync.WaitGroup
	defer work.Wait()
	clients := map[string]*fleet.Client{}
	open := func(job string) (*fleet.Client, error) {
		if c := clients[job]; c != nil {
			return c, nil
		}
		store, err := fleet.OpenStore(ctx, "sema://"+net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			return nil, err
		}
		c := fleet.New(store)
		clients[job] = c
		work.Go(func() {
			<-ctx.Done()
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = c.Close(closing) // the server is being stopped
			_ = store.Close()
		})
		return c, nil
	}
	for _, l := range demoLoads {
		if holders := strings.Fields(l.holders); len(holders) > 0 {
			api := "http://" + net.JoinHostPort("127.0.0.1", port) + "/v1/semaphores/" + url.PathEscape(l.name) + "/leases"
			for i := range l.workers {
				work.Go(func() { l.call(ctx, api, holders[i%len(holders)]) })
			}
			continue
		}
		jobs := strings.Fields(l.jobs)
		gates := make([]*fleet.Semaphore, len(jobs))
		for i, job := range jobs {
			client, err := open(job)
			if err != nil {
				return err
			}
			options := []fleet.Option{fleet.Labels(map[string]string{"job": job})}
			if l.window > 0 {
				options = append(options, fleet.Rate(l.window))
			}
			if gates[i], err = client.Semaphore(l.name, l.capacity, options...); err != nil {
				return err
			}
		}
		for i := range l.workers {
			work.Go(func() { l.run(ctx, gates[i%len(gates)]) })
		}
		switch l.name {
		case demoLeaking:
			work.Go(func() { leak(ctx, gates[0]) })
		case demoDraining:
			work.Go(func() { drainNowAndThen(ctx, gates[0]) })
		}
	}
	return nil
}

// run acquires, holds and releases a permit, again and again.
func (l demoLoad) run(ctx context.Context, gate *fleet.Semaphore) {
	for rest(ctx, l.pause) {
		p, err := acquireFor(ctx, gate, 8*time.Second)
		if err != nil {
			continue // drained, or the caller has waited for too long
		}
		rest(ctx, l.hold)
		p.Release()
	}
}

// call does the same over JSON. A full semaphore rejects it, unless it waits.
func (l demoLoad) call(ctx context.Context, api, holder string) {
	query := url.Values{"holder": {holder}}
	if l.wait > 0 {
		query.Set("wait", l.wait.String())
	}
	for rest(ctx, l.pause) {
		lease, err := request(ctx, "POST", api+"?"+query.Encode(), l.wait)
		if err != nil {
			continue // rejected: no permit is free
		}
		rest(ctx, l.hold)
		_, _ = request(context.WithoutCancel(ctx), "DELETE", api+"/"+url.PathEscape(lease), 0) // it expires otherwise
	}
}

// request calls the JSON API, which may wait. It returns the lease of the response.
func request(ctx context.Context, method, url string, wait time.Duration) (lease string, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait+5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		return "", fmt.Errorf("%s %s: %s", method, url, response.Status)
	}
	var got struct{ ID string }
	if method == "POST" {
		err = json.NewDecoder(response.Body).Decode(&got)
	}
	return got.ID, err
}

func acquireFor(ctx context.Context, gate *fleet.Semaphore, wait time.Duration) (sema.Permit, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return gate.Acquire(ctx, 1)
}

// leak holds a lease for long, again and again.
func leak(ctx context.Context, gate *fleet.Semaphore) {
	for rest(ctx, 5*time.Second) {
		p, err := acquireFor(ctx, gate, 8*time.Second)
		if err != nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(demoLeak):
		}
		p.Release()
	}
}

// drainNowAndThen drains a semaphore for a while, again and again.
func drainNowAndThen(ctx context.Context, gate *fleet.Semaphore) {
	for pause(ctx, demoDrainEvery) {
		if gate.Drain(ctx) == nil {
			pause(ctx, demoDrainFor)
			_ = gate.Resume(ctx) // fails if ctx has ended
		}
	}
}

// rest waits for a random time with a mean, and at most four times as long. It reports false when
// ctx has ended.
func rest(ctx context.Context, mean time.Duration) bool {
	return pause(ctx, min(4*mean, time.Duration(rand.ExpFloat64()*float64(mean)))+10*time.Millisecond)
}

// pause waits. It reports false when ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
