package dashboard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/survey"
)

const (
	every    = time.Second     // how often the engine is asked for the same, while anybody looks
	patience = 5 * time.Second // how long it has to answer
	atATime  = 8               // questions in a lane, so that to look is no burden
)

// An asker puts questions to the engine for everybody: the same is asked by one at a
// time, and not again while the answer is new enough. What is asked is asked to the
// end: somebody who goes away meanwhile takes the answer from nobody else.
type asker struct {
	engine  Engine
	trouble func(error) // is told when the engine ceases to answer
	life    context.Context
	end     context.CancelFunc
	running sync.WaitGroup
	first   chan struct{} // the lane of pages of one semaphore, which do not wait for those of many
	rest    chan struct{} // the lane of all others

	mu     sync.Mutex
	era    int // how often somebody has changed something here; answers of before do not count
	closed bool
	names  topic[[]name]
	clock  topic[time.Duration]
	probe  topic[struct{}]
	seen   map[string]*sighting
	trails map[string]*trail
	swept  time.Time

	survey survey.Survey // the load of all semaphores, for their order; it has a lock of its own

	unlisted, unread time.Time // since when there is no list, and no semaphore, as nothing is answered
}

func newAsker(e Engine, trouble func(error)) *asker {
	a := &asker{
		engine: e, trouble: trouble, first: make(chan struct{}, atATime), rest: make(chan struct{}, atATime),
		seen: map[string]*sighting{}, trails: map[string]*trail{},
	}
	a.life, a.end = context.WithCancel(context.Background())
	return a
}

// close returns when nothing is asked any more.
func (a *asker) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.end()
	a.running.Wait()
}

// renew has everything be asked anew.
func (a *asker) renew() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.era++
}

// A topic is what is asked again and again.
type topic[T any] struct {
	last *answer[T] // perhaps on its way; the asker's lock guards which it is
	used time.Time
}

// An answer is there when done is closed. The asker's lock guards the rest until then.
type answer[T any] struct {
	era            int
	made, at       time.Time // when somebody wanted it; when the engine was asked
	begun, hurried bool
	done           chan struct{}
	value          T
	err            error
}

var (
	errEnding = &sema.Error{Op: "watch", Err: sema.ErrClosed, Detail: "this server is being stopped"}
	errNoTurn = fmt.Errorf("%w: the engine is slow, and there was no answer for this one within %v; it is asked again", sema.ErrUnavailable, patience)
)

// ask is the answer to a question, which may be as old as that. A question without a
// lane need not wait for its turn: there are few of them.
func ask[T any](a *asker, t *topic[T], within time.Duration, lane chan struct{}, question func(context.Context) (T, error)) *answer[T] {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	t.used = now
	last := t.last
	if last == nil || last.era != a.era || last.over() && now.Sub(last.at) >= within {
		last = &answer[T]{era: a.era, made: now, at: now, done: make(chan struct{})}
		t.last = last
	} else if last.begun || last.hurried || lane != a.first {
		return last
	}
	last.hurried = lane == a.first
	if a.closed {
		last.begun, last.err = true, errEnding
		close(last.done)
		return last
	}
	a.running.Go(func() { put(a, last, lane, question) })
	return last
}

// put asks when it is this one's turn, unless it was its turn in another lane, or
// nobody waits for it any more.
func put[T any](a *asker, one *answer[T], lane chan struct{}, question func(context.Context) (T, error)) {
	if lane != nil {
		lane <- struct{}{}
		defer func() { <-lane }()
	}
	a.mu.Lock()
	mine := !one.begun
	if mine {
		one.begun, one.at = true, time.Now()
	}
	late := one.at.Sub(one.made) >= patience
	a.mu.Unlock()
	switch {
	case !mine:
		return
	case late:
		one.err = errNoTurn
	default:
		ctx, cancel := context.WithTimeout(a.life, patience)
		one.value, one.err = question(ctx)
		cancel()
	}
	close(one.done)
}

func (one *answer[T]) over() bool {
	select {
	case <-one.done:
		return true
	default:
		return false
	}
}

// wait is for an answer, until ctx ends. One that is there is taken even then.
func (one *answer[T]) wait(ctx context.Context) (T, error) {
	select {
	case <-one.done:
	case <-ctx.Done():
	}
	if !one.over() {
		var none T
		return none, errNoTurn
	}
	return one.value, one.err
}

// A name is one of a semaphore, and as a filter compares it.
type name struct{ is, lower string }

// list is the names of all semaphores, in order.
func (a *asker) list(ctx context.Context, within time.Duration) ([]name, error) {
	return ask(a, &a.names, within, nil, func(ctx context.Context) ([]name, error) {
		names, err := a.engine.List(ctx, "")
		slices.Sort(names)
		all := make([]name, len(names))
		for i, is := range names {
			all[i] = name{is, strings.ToLower(is)}
		}
		if err == nil {
			a.forget(&a.unlisted)
			a.survey.Keep(names)
		}
		return all, err
	}).wait(ctx)
}

// ahead is by how much the engine's clock is, which says since when permits are held.
func (a *asker) ahead(within time.Duration) *answer[time.Duration] {
	return ask(a, &a.clock, within, nil, func(ctx context.Context) (time.Duration, error) {
		there, err := a.engine.Ping(ctx)
		if err != nil || there.IsZero() {
			return 0, err
		}
		return time.Until(there), nil
	})
}

// A sighting is a semaphore that is looked at, with what was drawn of it.
type sighting struct {
	topic[*glance]
	album album
}

// look is at semaphores, from any of them on: where there is not the time for all,
// it is not always the same that are left out.
func (a *asker) look(ctx context.Context, names []string, within time.Duration, lane chan struct{}) map[string]*glance {
	clock := a.ahead(within)
	coming := make(map[string]*answer[*glance], len(names))
	albums := make(map[string]*album, len(names))
	from := 0
	if len(names) > 0 {
		from = rand.IntN(len(names))
	}
	for i := range names {
		name := names[(from+i)%len(names)]
		s := a.sightingOf(name)
		albums[name] = &s.album
		coming[name] = ask(a, &s.topic, within, lane, func(ctx context.Context) (*glance, error) { return a.inspect(ctx, name, &s.album, clock) })
	}
	all := make(map[string]*glance, len(names))
	for name, one := range coming {
		g, err := one.wait(ctx)
		if g == nil {
			g = newGlance(semaphore{Name: name, Failure: err.Error()}, albums[name])
			g.err, g.at = err, one.made
		}
		all[name] = g
	}
	a.sweep()
	return all
}

func (a *asker) sightingOf(name string) *sighting {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.seen[name]
	if s == nil {
		s = &sighting{album: album{drawings: map[string]drawing{}}}
		a.seen[name] = s
	}
	s.used = time.Now()
	return s
}

// inspect is one semaphore as it is now, or that there is none.
func (a *asker) inspect(ctx context.Context, name string, album *album, clock *answer[time.Duration]) (*glance, error) {
	at := time.Now()
	snapshot, err := a.read(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		a.survey.Forget(name)
		g := newGlance(semaphore{Name: name}, album)
		g.gone, g.at = true, at
		return g, nil
	}
	if err != nil {
		a.survey.Fail(name, at)
		return nil, err
	}
	album.turn()
	ahead, _ := clock.wait(ctx) // an engine without a clock has that of this machine
	g := newGlance(seen(name, snapshot, at.Add(ahead)).shortened(), album)
	g.at = at
	a.survey.Note(name, survey.Load{At: at, Waiting: g.Waiting(), Use: g.use()})
	a.remember(name, sample{at, snapshot.InUse, snapshot.Effective, g.Waiting()})
	return g, nil
}

// read is an Inspect. That there is no such semaphore is an answer as well.
func (a *asker) read(ctx context.Context, name string) (protocol.Snapshot, error) {
	s, err := a.engine.Inspect(ctx, name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		a.forget(&a.unlisted, &a.unread)
	}
	return s, err
}

// remember keeps what was seen, for the charts.
func (a *asker) remember(name string, s sample) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.trails[name]
	if t == nil {
		t = &trail{}
		a.trails[name] = t
	}
	t.add(s)
}

// trailOf is what is remembered of a semaphore, oldest first.
func (a *asker) trailOf(name string) []sample {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.trails[name]; t != nil {
		return slices.Clone(t.samples)
	}
	return nil
}

// sweep forgets what nobody looks at any more.
func (a *asker) sweep() {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if now.Sub(a.swept) < every {
		return
	}
	a.swept = now
	for name, s := range a.seen {
		if now.Sub(s.used) > gap && s.last != nil && s.last.over() {
			delete(a.seen, name)
		}
	}
	for name, t := range a.trails {
		if t.forget(now.Add(-trailSpan)) {
			delete(a.trails, name)
		}
	}
}

// forget has a failure be over.
func (a *asker) forget(since ...*time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range since {
		*one = time.Time{}
	}
}

// away reports whether the engine does not answer at all, after something could not
// be read, and since when. That one thing cannot be read is not enough: it is asked
// for another one, and is not away if that is there, or is not.
func (a *asker) away(ctx context.Context, failing *time.Time, now time.Time, why error) (since time.Time, is bool) {
	soon, cancel := context.WithTimeout(ctx, 2*every)
	defer cancel()
	_, err := ask(a, &a.probe, every, nil, func(ctx context.Context) (struct{}, error) {
		_, err := a.read(ctx, "sema-readyz")
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return struct{}{}, err
	}).wait(soon)
	if err == nil || ctx.Err() != nil {
		return time.Time{}, false
	}
	a.mu.Lock()
	begins := failing.IsZero()
	if begins {
		*failing = now
	}
	since = *failing
	a.mu.Unlock()
	if begins {
		a.trouble(why)
	}
	return since, true
}
