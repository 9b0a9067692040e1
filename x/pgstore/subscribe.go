package pgstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// listenerName is the name of the connection in pg_stat_activity, unless the URL sets
// one.
const listenerName = "sema listener"

// connectListener opens a connection to listen on.
func (s *Store) connectListener(ctx context.Context) (*pgx.Conn, error) {
	config := s.pool.Config().ConnConfig
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = listenerName
	}
	if direct := s.options.Listen; direct != listenAuto {
		if err := redirect(config, direct); err != nil {
			return nil, err
		}
	}
	return pgx.ConnectConfig(ctx, config)
}

// redirect changes the target to a host:port, which has a certificate of its own, or
// none if the settings allow that.
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
		if f.Host == config.Host && f.Port == config.Port { // the same address, with TLS and without
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

// errPooled means that LISTEN is not possible: a notification on a server connection of a
// pooler goes to the client that uses that connection at the time.
var errPooled = errors.New("there is a pooler in between")

// subscribe receives by LISTEN, on a connection of its own. It checks once for
// notifications from before that, and for all of them at every review.
func (l *listener) subscribe(ctx context.Context) error {
	c, err := l.store.connectListener(ctx)
	if err != nil {
		return err
	}
	defer func() {
		ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = c.Close(ended)
	}()
	if pooled, err := behindPooler(ctx, c); err != nil {
		return err
	} else if pooled && l.store.options.Listen == listenAuto {
		return errPooled
	}
	return newSubscription(l, c).serve(ctx)
}

// A subscription holds the channels that a connection listens on.
type subscription struct {
	*listener
	conn      *pgx.Conn
	channels  map[string]string   // by instance
	instances map[string][]string // by channel, which they may share
}

func newSubscription(l *listener, c *pgx.Conn) *subscription {
	return &subscription{listener: l, conn: c, channels: map[string]string{}, instances: map[string][]string{}}
}

// serve receives until the connection is lost. It begins with the instances that listen
// already. An earlier connection may have passed on some of their notifications.
func (s *subscription) serve(ctx context.Context) error {
	joined, left := s.store.hub.Changes()
	s.forget(joined, left)
	joined, left = s.store.hub.All(), nil
	due := nextReview()
	for {
		if err := s.change(ctx, joined, left); err != nil {
			return err
		}
		if err := s.check(ctx, s.conn, joined); err != nil {
			return err
		}
		if err := s.receive(ctx, due); err != nil {
			return err
		}
		joined, left = s.store.hub.Changes()
		s.forget(joined, left)
		if !time.Now().Before(due) {
			joined, due = s.store.hub.All(), nextReview()
		}
	}
}

// nextReview returns the time of the next review. It has jitter, so that processes do not
// all query at the same time.
func nextReview() time.Time { return time.Now().Add(reviewEvery - rand.N(reviewEvery/4)) }

// change makes the connection LISTEN for instances that joined, and UNLISTEN for those that
// left.
func (s *subscription) change(ctx context.Context, joined, left []string) error {
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	var script strings.Builder
	for _, instance := range left {
		if channel := s.remove(instance); channel != "" {
			script.WriteString("UNLISTEN " + pgx.Identifier{channel}.Sanitize() + ";")
		}
	}
	joined = slices.DeleteFunc(slices.Clone(joined), func(instance string) bool { return s.channels[instance] != "" })
	if len(joined) > 0 {
		var instance, channel string
		rows, err := s.conn.Query(ctx, s.store.calls.channels, pgx.QueryExecModeExec, joined)
		if err != nil {
			return err
		}
		_, err = pgx.ForEachRow(rows, []any{&instance, &channel}, func() error {
			s.channels[instance], s.instances[channel] = channel, append(s.instances[channel], instance)
			script.WriteString("LISTEN " + pgx.Identifier{channel}.Sanitize() + ";")
			return nil
		})
		if err != nil {
			return err
		}
	}
	if script.Len() == 0 {
		return nil
	}
	return s.conn.PgConn().Exec(ctx, script.String()).Close()
}

// remove removes an instance and returns its channel if no other instance has it.
func (s *subscription) remove(instance string) (unused string) {
	channel := s.channels[instance]
	delete(s.channels, instance)
	s.instances[channel] = slices.DeleteFunc(s.instances[channel], func(other string) bool { return other == instance })
	if len(s.instances[channel]) > 0 {
		return ""
	}
	delete(s.instances, channel)
	return channel
}

// receive passes on notifications until a review is due, or instances join or leave.
func (s *subscription) receive(ctx context.Context, due time.Time) error {
	within, cancel := context.WithDeadline(ctx, due)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	waiting.Go(func() {
		select {
		case <-s.store.hub.Changed():
			cancel()
		case <-within.Done():
		}
	})
	for {
		n, err := s.conn.WaitForNotification(within)
		switch {
		case err != nil && within.Err() != nil && ctx.Err() == nil && !s.conn.IsClosed():
			return nil
		case err != nil:
			return err
		}
		for _, instance := range s.instances[n.Channel] {
			s.pass(instance, n.Payload)
		}
	}
}
