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

	"github.com/sema-go/sema/x/internal/hints"
)

// Options describe the servers and how they are used.
type Options struct {
	// Addresses are host:port of the server; of some nodes of the cluster; of the
	// Sentinels; or of all the servers that semaphores are spread over.
	Addresses []string
	Username  string
	Password  string
	DB        int
	// Prefix precedes the names of semaphores in keys and channels; default "sema:".
	Prefix string
	// TLS configures TLS; nil for none.
	TLS *tls.Config

	// Sentinel is the name of the primary at the Sentinels at Addresses.
	Sentinel                           string
	SentinelUsername, SentinelPassword string
	// Cluster is true for a Redis Cluster.
	Cluster bool
	// Sharded spreads semaphores over independent servers.
	Sharded bool

	// Promotion bounds how long a primary that was cut off may go on replying after
	// a replica was promoted: min-replicas-max-lag and two seconds; default 12s.
	Promotion time.Duration
	// AllowEviction opens servers whose maxmemory-policy is not noeviction. Such a
	// server may lose leases when its memory is short.
	AllowEviction bool
	// Logger gets [Store.Warnings] when the store is opened; default slog.Default.
	Logger *slog.Logger
}

const (
	defaultPrefix    = "sema:"
	defaultPromotion = 12 * time.Second
	connectTimeout   = 5 * time.Second
)

// Open connects to the servers.
func Open(ctx context.Context, o Options) (*Store, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &Store{options: o, program: standard}
	s.life, s.end = context.WithCancel(context.Background())
	for _, addresses := range o.groups() {
		server, err := dial(ctx, o, addresses)
		if err != nil {
			s.Close()
			return nil, err
		}
		server.hub = hints.NewHub(func(ctx context.Context) { s.receive(ctx, server) })
		s.servers = append(s.servers, server)
	}
	nodes := s.examineNodes(ctx)
	if err := s.rejectEviction(nodes); err != nil {
		s.Close()
		return nil, err
	}
	s.warnings = problems(nodes)
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

// dial connects to a server.
func dial(ctx context.Context, o Options, addresses []string) (*server, error) {
	option := o.client(addresses)
	s := &server{
		address: strings.Join(addresses, ","),
		connect: func() (rueidis.Client, error) { return rueidis.NewClient(option) },
		epochs:  make([]atomic.Int64, 1),
	}
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
		// One connection for everything: concurrent requests are sent together.
		PipelineMultiplex: -1,
		ClientName:        "sema", DisableCache: true, ForceSingleClient: !o.Cluster && o.Sentinel == "",
		Sentinel: rueidis.SentinelOption{
			MasterSet: o.Sentinel, Username: o.SentinelUsername, Password: o.SentinelPassword, TLSConfig: o.TLS, Dialer: dialer,
			TopologyRefreshInterval: connectTimeout,
		},
		ClusterOption: rueidis.ClusterOption{ShardsRefreshInterval: connectTimeout},
	}
}
