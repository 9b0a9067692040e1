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

// Options are where the servers are and how they are used.
type Options struct {
	// Addresses are host:port of the server; of some nodes of the cluster; of the
	// Sentinels; or of all the servers that semaphores are spread over.
	Addresses []string
	Username  string
	Password  string
	DB        int
	// Prefix is put before the names of semaphores, of keys and channels; "sema:"
	// unless told.
	Prefix string
	// TLS is how to speak it, nil for not.
	TLS *tls.Config

	// Sentinel is the name of the primary that the Sentinels at Addresses know.
	Sentinel                           string
	SentinelUsername, SentinelPassword string
	// Cluster is for a Redis Cluster.
	Cluster bool
	// Sharded spreads semaphores over servers that know nothing of each other.
	Sharded bool

	// Promotion is for how long a primary that was cut off may go on answering
	// after a replica was promoted: min-replicas-max-lag and two seconds, 12 s
	// unless told.
	Promotion time.Duration
	// AllowEviction opens servers whose maxmemory-policy is not noeviction. Such a
	// server may forget who holds what when its memory is short.
	AllowEviction bool
	// Logger is told of what [Store.Warnings] has, when the store is opened;
	// slog.Default unless told.
	Logger *slog.Logger
}

const (
	defaultPrefix    = "sema:"
	defaultPromotion = 12 * time.Second
	patience         = 5 * time.Second // to be connected
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
		server.hub = hints.NewHub(func(ctx context.Context) { s.hear(ctx, server) })
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

// groups are the addresses of each server.
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
		met:     make([]atomic.Int64, 1),
	}
	if o.Cluster {
		s.met = make([]atomic.Int64, slots)
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
	dialer := net.Dialer{Timeout: patience, KeepAlive: time.Second}
	return rueidis.ClientOption{
		InitAddress: addresses, Username: o.Username, Password: o.Password, SelectDB: o.DB, TLSConfig: o.TLS, Dialer: dialer,
		// One connection for everything: what is said at the same time is sent together.
		PipelineMultiplex: -1,
		ClientName:        "sema", DisableCache: true, ForceSingleClient: !o.Cluster && o.Sentinel == "",
		Sentinel: rueidis.SentinelOption{
			MasterSet: o.Sentinel, Username: o.SentinelUsername, Password: o.SentinelPassword, TLSConfig: o.TLS, Dialer: dialer,
			TopologyRefreshInterval: patience,
		},
		ClusterOption: rueidis.ClusterOption{ShardsRefreshInterval: patience},
	}
}
