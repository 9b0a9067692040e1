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

// listenerName is what people see in pg_stat_activity, unless the URL says
// otherwise.
const listenerName = "sema listener"

// connectListener makes a connection to listen on.
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

// errPooled is that there is no connection to listen on: what is heard on one of a
// pooler's is for whoever has it then.
var errPooled = errors.New("there is a pooler in between")

// subscribe hears by LISTEN, on a connection of its own. What there was before it
// is looked for once, and all of it now and then.
func (e *ear) subscribe(ctx context.Context) error {
	c, err := e.store.connectListener(ctx)
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
	} else if pooled && e.store.options.Listen == listenAuto {
		return errPooled
	}
	return newSubscription(e, c).serve(ctx)
}

// A subscription is the channels that a connection listens on.
type subscription struct {
	*ear
	conn      *pgx.Conn
	channels  map[string]string   // by instance
	instances map[string][]string // by channel, which they may share
}

func newSubscription(e *ear, c *pgx.Conn) *subscription {
	return &subscription{ear: e, conn: c, channels: map[string]string{}, instances: map[string][]string{}}
}

// serve begins with those who listen already. They were told before the connection
// was lost, if there was one, what has been told.
func (s *subscription) serve(ctx context.Context) error {
	joined, left := s.store.hub.Changes()
	s.forget(joined, left)
	joined, left = s.store.hub.All(), nil
	due := nextReview()
	for {
		if err := s.change(ctx, joined, left); err != nil {
			return err
		}
		if err := s.look(ctx, s.conn, joined); err != nil {
			return err
		}
		if err := s.hear(ctx, due); err != nil {
			return err
		}
		joined, left = s.store.hub.Changes()
		s.forget(joined, left)
		if !time.Now().Before(due) {
			joined, due = s.store.hub.All(), nextReview()
		}
	}
}

// nextReview is not that of all others.
func nextReview() time.Time { return time.Now().Add(review - rand.N(review/4)) }

// change has the connection LISTEN for instances, unless it does, and for others no
// more.
func (s *subscription) change(ctx context.Context, joined, left []string) error {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
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

// remove returns the channel of an instance if no other has it.
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

// hear passes on what is notified, until something is due or somebody comes or
// goes.
func (s *subscription) hear(ctx context.Context, due time.Time) error {
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
			s.tell(instance, n.Payload)
		}
	}
}
