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

	// reviewEvery is the interval at which a connection that LISTENs is also queried: it
	// can be lost without an error, and then the query gets no reply.
	reviewEvery = 15 * time.Second
	// checkWithin bounds one check for notifications, and one change of the channels.
	checkWithin = 5 * time.Second

	// Pauses between attempts to listen double from firstPause to lastPause.
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
)

// Listen implements [fleet.Store]. All listeners share a connection, which is opened
// again when it is lost. Notifications that were missed meanwhile are passed on then.
func (s *Store) Listen(ctx context.Context, instance string, notify func(name string)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(s.fault(context.Background(), errClosed)) })()
	return s.hub.Listen(ctx, encodeText(instance), notify)
}

// receive passes notifications to the hub until the context ends.
func (s *Store) receive(ctx context.Context) {
	l := &listener{store: s, passed: map[string]map[int64]int64{}}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		l.checked = false
		_ = l.listen(ctx) // the next operation fails with the same error
		if l.checked {
			pause = firstPause
		} else { // the pool may have a connection though there is none to listen on
			_ = l.check(ctx, s.pool, s.hub.All())
		}
		if ctx.Err() != nil {
			return
		}
		sleep(ctx, pause/2+rand.N(pause))
	}
}

// A listener receives the notifications of all instances that listen through a store.
type listener struct {
	store   *Store
	passed  map[string]map[int64]int64 // by instance and session: the last count that was passed on, see pending_notifications
	checked bool                       // a check has succeeded since it last connected
}

// listen receives until the connection is lost or ctx ends.
func (l *listener) listen(ctx context.Context) error {
	if l.store.options.Listen != listenPoll {
		if err := l.subscribe(ctx); !errors.Is(err, errPooled) {
			return err
		}
	}
	return l.poll(ctx)
}

// poll checks for notifications every Options.Poll, through the pool.
func (l *listener) poll(ctx context.Context) error {
	hub := l.store.hub
	for {
		l.forget(hub.Changes())
		if err := l.check(ctx, l.store.pool, hub.All()); err != nil {
			return err
		}
		every := l.store.options.Poll
		if err := l.pollJoined(ctx, every-every/8+rand.N(every/4+1)); err != nil {
			return err
		}
	}
}

// pollJoined checks for notifications of instances that begin to listen, for the duration
// within.
func (l *listener) pollJoined(ctx context.Context, within time.Duration) error {
	over := time.NewTimer(within)
	defer over.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-over.C:
			return nil
		case <-l.store.hub.Changed():
		}
		joined, left := l.store.hub.Changes()
		l.forget(joined, left)
		if err := l.check(ctx, l.store.pool, joined); err != nil {
			return err
		}
	}
}

// forget makes the next check pass on all notifications of instances that joined, and
// drops the counts of those that left.
func (l *listener) forget(joined, left []string) {
	for _, moved := range [][]string{joined, left} {
		for _, instance := range moved {
			delete(l.passed, instance)
		}
	}
}

// check reads the notifications of instances that are stored, and passes on those that it
// has not passed on before.
func (l *listener) check(ctx context.Context, in interface {
	Query(context.Context, string, ...any) (pgx.Rows, error)
}, instances []string) error {
	if len(instances) == 0 {
		l.checked = true
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	rows, err := in.Query(ctx, l.store.calls.pending, instances)
	if err != nil {
		return err
	}
	var (
		instance, name string
		session, count int64
		found          = map[string]map[int64]int64{}
	)
	_, err = pgx.ForEachRow(rows, []any{&instance, &name, &session, &count}, func() error {
		if found[instance] == nil {
			found[instance] = map[int64]int64{}
		}
		found[instance][session] = count
		if l.passed[instance][session] != count {
			l.pass(instance, name)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("check for notifications: %w", err)
	}
	l.checked = true
	for _, instance := range instances {
		if found[instance] == nil {
			delete(l.passed, instance)
		} else {
			l.passed[instance] = found[instance]
		}
	}
	return nil
}

// pass passes on a notification, unless the semaphore has another prefix.
func (l *listener) pass(instance, whole string) {
	if name, own := strings.CutPrefix(whole, l.store.options.Prefix); own {
		l.store.hub.Notify(instance, name)
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
