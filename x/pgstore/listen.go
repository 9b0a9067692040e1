package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	listenAuto = "auto"
	listenPoll = "poll"

	// review is how often one looks who listens all the same: a connection can be
	// dead without anybody being told. Then there is no answer either.
	review     = 15 * time.Second
	lookWithin = 5 * time.Second

	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
)

// Listen is for [fleet.Store]. All who listen share a connection, which is made
// again when it is lost: what was missed meanwhile is told then.
func (s *Store) Listen(ctx context.Context, instance string, hint func(name string)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(s.fault(context.Background(), errClosed)) })()
	return s.hub.Listen(ctx, encodeText(instance), hint)
}

// hear is for the hub.
func (s *Store) hear(ctx context.Context) {
	e := &ear{store: s, told: map[string]map[int64]int64{}}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		e.looked = false
		_ = e.listen(ctx) // whose error is that of the next call, too
		if e.looked {
			pause = firstPause
		} else { // there may be a connection for calls, and none for this
			_ = e.look(ctx, s.pool, s.hub.All())
		}
		if ctx.Err() != nil {
			return
		}
		sleep(ctx, pause/2+rand.N(pause))
	}
}

// An ear hears of news for all who listen.
type ear struct {
	store  *Store
	told   map[string]map[int64]int64 // of instances and their sessions: up to which of their news
	looked bool                       // since it last connected
}

// listen hears until the connection is lost or ctx ends.
func (e *ear) listen(ctx context.Context) error {
	if e.store.options.Listen != listenPoll {
		if err := e.subscribe(ctx); !errors.Is(err, errPooled) {
			return err
		}
	}
	return e.poll(ctx)
}

// poll looks again and again, through the pool.
func (e *ear) poll(ctx context.Context) error {
	hub := e.store.hub
	for {
		e.forget(hub.Changes())
		if err := e.look(ctx, e.store.pool, hub.All()); err != nil {
			return err
		}
		every := e.store.options.Poll
		if err := e.pollJoined(ctx, every-every/8+rand.N(every/4+1)); err != nil {
			return err
		}
	}
}

// pollJoined looks for those who come within a while.
func (e *ear) pollJoined(ctx context.Context, within time.Duration) error {
	over := time.NewTimer(within)
	defer over.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-over.C:
			return nil
		case <-e.store.hub.Changed():
		}
		joined, left := e.store.hub.Changes()
		e.forget(joined, left)
		if err := e.look(ctx, e.store.pool, joined); err != nil {
			return err
		}
	}
}

// forget has those who join be told all that there is.
func (e *ear) forget(joined, left []string) {
	for _, moved := range [][]string{joined, left} {
		for _, instance := range moved {
			delete(e.told, instance)
		}
	}
}

// look finds the sessions of instances that have news, and hints at those it has
// not hinted at yet.
func (e *ear) look(ctx context.Context, in interface {
	Query(context.Context, string, ...any) (pgx.Rows, error)
}, instances []string) error {
	if len(instances) == 0 {
		e.looked = true
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	rows, err := in.Query(ctx, e.store.calls.pending, instances)
	if err != nil {
		return err
	}
	var (
		instance, name string
		session, news  int64
		found          = map[string]map[int64]int64{}
	)
	_, err = pgx.ForEachRow(rows, []any{&instance, &name, &session, &news}, func() error {
		if found[instance] == nil {
			found[instance] = map[int64]int64{}
		}
		found[instance][session] = news
		if e.told[instance][session] != news {
			e.tell(instance, name)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for news: %w", err)
	}
	e.looked = true
	for _, instance := range instances {
		if found[instance] == nil {
			delete(e.told, instance)
		} else {
			e.told[instance] = found[instance]
		}
	}
	return nil
}

// tell passes on the name of a semaphore, unless it is one of another prefix.
func (e *ear) tell(instance, whole string) {
	if name, own := strings.CutPrefix(whole, e.store.options.Prefix); own {
		e.store.hub.Tell(instance, name)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
