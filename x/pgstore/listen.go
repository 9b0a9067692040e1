package pgstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	listenAuto = "auto"
	listenPoll = "poll"

	// review is how often somebody who listens looks all the same: a connection
	// can be dead without anybody being told. Then there is no answer either.
	review     = 15 * time.Second
	lookWithin = 5 * time.Second

	// listenerName is what people see in pg_stat_activity, unless the URL says
	// otherwise.
	listenerName = "sema listener"

	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
)

// Listen is for [fleet.Store]. It has a connection of its own, which is made
// again when it is lost.
func (s *Store) Listen(ctx context.Context, instance string, hint func(name string)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var closing sync.WaitGroup
	defer closing.Wait()
	defer cancel(nil)
	closing.Go(func() {
		select {
		case <-s.closed:
			cancel(s.fault(context.Background(), errClosed))
		case <-ctx.Done():
		}
	})
	l := &listener{store: s, instance: encodeText(instance), hint: hint, told: map[int64]int64{}}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		l.looked = false
		l.listen(ctx) // whose error is that of the next call, too
		if l.looked {
			pause = firstPause
		} else { // there may be a connection for calls, and none for this
			_ = l.look(ctx, s.pool)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		sleep(ctx, pause/2+rand.N(pause))
	}
}

// A listener hears of news of one instance.
type listener struct {
	store    *Store
	instance string
	hint     func(name string)
	told     map[int64]int64 // of sessions: up to which of their news
	looked   bool            // since it last connected
}

// listen hears until the connection is lost or ctx ends. Behind a pooler there
// is no connection to listen on: what is heard on it is for whoever has it then.
func (l *listener) listen(ctx context.Context) error {
	if l.store.options.Listen == listenPoll {
		return l.poll(ctx)
	}
	config := l.store.pool.Config().ConnConfig
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = listenerName
	}
	if direct := l.store.options.Listen; direct != listenAuto {
		if err := redirect(config, direct); err != nil {
			return err
		}
	}
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() {
		ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		c.Close(ended)
	}()
	if pooled, err := behindPooler(ctx, c); err != nil {
		return err
	} else if pooled && l.store.options.Listen == listenAuto {
		return l.poll(ctx)
	}
	return l.subscribe(ctx, c)
}

// redirect has a connection go to a host:port, which has a certificate of its own,
// or none if that will do.
func redirect(config *pgx.ConnConfig, to string) error {
	host, port, err := net.SplitHostPort(to)
	if err != nil {
		return err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return err
	}
	ways := []*pgconn.FallbackConfig{{Host: config.Host, Port: config.Port, TLSConfig: config.TLSConfig}}
	for _, f := range config.Fallbacks {
		if f.Host == config.Host && f.Port == config.Port { // the same one, with TLS and without
			ways = append(ways, f)
		}
	}
	for _, way := range ways {
		way.Host, way.Port = host, uint16(number)
		if way.TLSConfig != nil && way.TLSConfig.ServerName != "" {
			way.TLSConfig.ServerName = host
		}
	}
	config.Host, config.Port, config.Fallbacks = host, uint16(number), ways[1:]
	return nil
}

// subscribe hears by LISTEN. What there was before it is looked for once.
func (l *listener) subscribe(ctx context.Context, c *pgx.Conn) error {
	var channel string
	if err := c.QueryRow(ctx, l.store.calls.channel, pgx.QueryExecModeExec, l.instance).Scan(&channel); err != nil {
		return err
	}
	if _, err := c.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize(), pgx.QueryExecModeExec); err != nil {
		return err
	}
	for {
		if err := l.look(ctx, c); err != nil {
			return err
		}
		if err := l.hear(ctx, c); err != nil {
			return err
		}
	}
}

// hear passes on what is notified, for a while.
func (l *listener) hear(ctx context.Context, c *pgx.Conn) error {
	within, cancel := context.WithTimeout(ctx, review-rand.N(review/4))
	defer cancel()
	for {
		n, err := c.WaitForNotification(within)
		switch {
		case err != nil && within.Err() != nil && ctx.Err() == nil && !c.IsClosed():
			return nil
		case err != nil:
			return err
		}
		l.tell(n.Payload)
	}
}

// poll looks again and again, through the pool.
func (l *listener) poll(ctx context.Context) error {
	for {
		if err := l.look(ctx, l.store.pool); err != nil {
			return err
		}
		every := l.store.options.Poll
		sleep(ctx, every-every/8+rand.N(every/4+1))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// look finds the sessions that have news, and hints at those it has not hinted at
// yet.
func (l *listener) look(ctx context.Context, in interface {
	Query(context.Context, string, ...any) (pgx.Rows, error)
}) error {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	rows, err := in.Query(ctx, l.store.calls.news, l.instance)
	if err != nil {
		return err
	}
	var (
		name          string
		session, news int64
		found         = map[int64]int64{}
	)
	names := []string{}
	_, err = pgx.ForEachRow(rows, []any{&name, &session, &news}, func() error {
		if l.told[session] != news {
			names = append(names, name)
		}
		found[session] = news
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for news: %w", err)
	}
	l.told, l.looked = found, true
	for _, name := range names {
		l.tell(name)
	}
	return nil
}

// tell passes on the name of a semaphore, unless it is one of another prefix.
func (l *listener) tell(whole string) {
	if name, own := strings.CutPrefix(whole, l.store.options.Prefix); own {
		l.hint(name)
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
