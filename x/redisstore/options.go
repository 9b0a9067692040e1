package redisstore

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/sema-go/sema/x/internal/notify"
)

// Options configure a store.
type Options struct {
	// Addresses lists the servers as host:port: the server, some nodes of the cluster,
	// the Sentinels, or all servers over which semaphores are spread. The default port
	// is 6379, and 26379 with Sentinel.
	Addresses []string
	// Username and Password authenticate the client to the servers; default none.
	Username, Password string
	// DB is the number of the database; default 0, which a cluster requires.
	DB int
	// Prefix precedes the names of semaphores in keys and channels; default "sema:".
	Prefix string
	// TLS configures TLS; nil disables it.
	TLS *tls.Config

	// Sentinel is the name under which the Sentinels at Addresses know the primary; ""
	// if Addresses are not Sentinels.
	Sentinel string
	// SentinelUsername and SentinelPassword authenticate the client to the Sentinels;
	// default none.
	SentinelUsername, SentinelPassword string
	// Cluster is true if Addresses are nodes of a Redis Cluster.
	Cluster bool
	// Sharded spreads semaphores over the independent servers at Addresses.
	Sharded bool

	// Promotion bounds how long a primary that was cut off may reply to requests after
	// a replica was promoted: min-replicas-max-lag plus two seconds; default 12s.
	Promotion time.Duration
	// AllowEviction makes Open accept servers whose maxmemory-policy is not noeviction.
	// Such a server may remove leases when its memory is short.
	AllowEviction bool
	// Logger receives [Store.Warnings] when the store is opened; default slog.Default.
	Logger *slog.Logger
}

const (
	defaultPrefix    = "sema:"
	defaultPromotion = 12 * time.Second
	connectTimeout   = 5 * time.Second
)

// Open connects to the servers and returns a store that uses them. It rejects servers
// that may evict keys, unless [Options].AllowEviction is set.
func Open(ctx context.Context, o Options) (*Store, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &Store{options: o, channels: o.Prefix + "notify:", program: standard()}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for _, addresses := range o.groups() {
		server, err := dial(ctx, o, addresses)
		if err != nil {
			s.Close()
			return nil, err
		}
		server.hub = notify.NewHub(func(ctx context.Context) { s.receive(ctx, server) })
		s.servers = append(s.servers, server)
	}
	nodes := s.examineNodes(ctx)
	if err := s.rejectEviction(nodes); err != nil {
		s.Close()
		return nil, err
	}
	s.warnings = warningsOf(nodes)
	logger := o.Logger
	if logger == nil {
		logger = slog.Default()
	}
	for _, warning := range s.warnings {
		logger.Warn("sema: " + warning)
	}
	return s, nil
}

// groups returns the addresses of each server.
func (o Options) groups() (groups [][]string) {
	if !o.Sharded {
		return [][]string{o.Addresses}
	}
	for _, address := range o.Addresses {
		groups = append(groups, []string{address})
	}
	return groups
}

// dial connects to a server. It returns when ctx ends, and then closes a connection that
// is established later.
func dial(ctx context.Context, o Options, addresses []string) (*server, error) {
	s := &server{address: strings.Join(addresses, ","), epochs: make([]atomic.Int64, 1)}
	option := o.client(addresses)
	option.DialCtxFn = s.dial
	s.connect = func() (rueidis.Client, error) { return rueidis.NewClient(option) }
	if o.Cluster {
		s.epochs = make([]atomic.Int64, slots)
	}
	type connected struct {
		client rueidis.Client
		err    error
	}
	result := make(chan connected, 1)
	go func() {
		c, err := s.connect()
		result <- connected{c, err}
	}()
	select {
	case r := <-result:
		if r.err != nil {
			return nil, explainDial(ctx, o, addresses, r.err)
		}
		s.client.Store(&r.client)
		return s, nil
	case <-ctx.Done():
		go func() {
			if r := <-result; r.err == nil {
				r.client.Close()
			}
		}()
		return nil, explainDial(ctx, o, addresses, ctx.Err())
	}
}

func (o Options) client(addresses []string) rueidis.ClientOption {
	dialer := net.Dialer{Timeout: connectTimeout, KeepAlive: time.Second}
	return rueidis.ClientOption{
		InitAddress: addresses, Username: o.Username, Password: o.Password, SelectDB: o.DB, TLSConfig: o.TLS, Dialer: dialer,
		// One connection for all commands that are marked with ToPipe: concurrent ones are
		// sent together. Others use a connection of their own, see caller.
		PipelineMultiplex: -1, DisableAutoPipelining: true,
		ClientName: "sema", DisableCache: true, ForceSingleClient: !o.Cluster && o.Sentinel == "",
		Sentinel: rueidis.SentinelOption{
			MasterSet: o.Sentinel, Username: o.SentinelUsername, Password: o.SentinelPassword, TLSConfig: o.TLS, Dialer: dialer,
			TopologyRefreshInterval: connectTimeout,
		},
		ClusterOption: rueidis.ClusterOption{ShardsRefreshInterval: connectTimeout},
	}
}
