package remotestore

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/sema-go/sema/x/internal/wire"
	"github.com/sema-go/sema/x/semav1/semav1connect"
)

// A server that is gone without a word is found out by waiting. Holders trust in
// their leases for ten seconds unless told otherwise, and in that time the next
// server has to be reached.
const (
	dialWithin  = 2 * time.Second
	pingAfter   = 2 * time.Second // of silence on a connection
	pingWithin  = 1500 * time.Millisecond
	longSilence = time.Second // after which another server is tried next

	// maxAnswer is what a semaphore with a hundred thousand holders takes.
	maxAnswer = 64 << 20
)

// newTransport makes connections. Without TLS they are of HTTP/2 from the first
// byte on: all calls share one, and it is known soon when that is dead.
func newTransport(secure *tls.Config) *http.Transport {
	t := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialWithin, KeepAlive: pingAfter * 2}).DialContext,
		TLSClientConfig:     secure,
		TLSHandshakeTimeout: dialWithin,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 64, // should a proxy speak HTTP/1.1 only
		IdleConnTimeout:     90 * time.Second,
		Protocols:           &http.Protocols{},
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingWithin, WriteByteTimeout: pingAfter},
	}
	if secure == nil {
		t.Protocols.SetUnencryptedHTTP2(true)
	} else {
		t.Protocols.SetHTTP2(true)
		t.Protocols.SetHTTP1(true)
	}
	return t
}

// servers are those of the service. All calls go to one of them until it does not
// answer.
type servers struct {
	all     []*server
	current atomic.Uint32 // counts on; modulo their number
}

// A server is one of them.
type server struct {
	address string
	client  semav1connect.StoreServiceClient
	silent  atomic.Int64 // since when calls had no answer, in nanoseconds since 1970; 0: it answers
}

// answers is after an answer.
func (s *server) answers() {
	if s.silent.Load() != 0 {
		s.silent.Store(0)
	}
}

// isSilent notes that a call that was made then has no answer yet, though whoever
// made it cannot wait any longer, and reports whether it is so for too long.
func (s *server) isSilent(began time.Time) bool {
	s.silent.CompareAndSwap(0, began.UnixNano())
	if time.Since(time.Unix(0, s.silent.Load())) < longSilence {
		return false
	}
	s.silent.Store(0) // when its turn comes again, it has another chance
	return true
}

func newServers(addresses []string, secure bool, transport http.RoundTripper, t *token) *servers {
	made := &servers{}
	scheme := "http://"
	if secure {
		scheme = "https://"
	}
	for _, address := range addresses {
		made.all = append(made.all, &server{address: address, client: semav1connect.NewStoreServiceClient(
			&http.Client{Transport: transport, CheckRedirect: stay}, scheme+address,
			connect.WithInterceptors(t), connect.WithAcceptCompression("gzip", nil, nil), connect.WithReadMaxBytes(maxAnswer),
		)})
	}
	made.current.Store(rand.Uint32N(uint32(len(addresses)))) // not all clients at the same one
	return made
}

// stay does not follow redirects: the token is for the hosts that were named.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// now is the server to ask, and its turn.
func (s *servers) now() (*server, uint32) {
	turn := s.current.Load()
	return s.all[turn%uint32(len(s.all))], turn
}

// leave has the next server be asked. It counts once for all who asked in a turn.
func (s *servers) leave(turn uint32) { s.current.CompareAndSwap(turn, turn+1) }

// A manner is what to do if an answer is lost. What was surely not heard is always
// said again.
type manner int

const (
	repeatable manner = iota // ask again
	opening                  // the caller does, and the session that nobody knows dies
	commanding               // nobody does: it may have been done, and would fail now
)

// call asks one server after the other until there is an answer, each once and the
// first one again: it may only have closed the connection.
func call[Q, A any](
	ctx context.Context, s *Store, how manner, question *Q, ask func(semav1connect.StoreServiceClient, context.Context, *Q) (*A, error),
) (*A, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	for tries := (&tries{store: s, how: how}); ; {
		asking := tries.begin(ctx)
		answer, err := ask(tries.to.client, asking, question)
		if err == nil {
			tries.to.answers()
			return answer, nil
		}
		if err := tries.failed(ctx, err); err != nil {
			return nil, err
		}
	}
}

// tries are those of one call.
type tries struct {
	store     *Store
	how       manner
	n         int
	unreached int  // of them, those at which nobody was there
	renewed   bool // the token was read again

	to    *server
	turn  uint32
	began time.Time
	sent  atomic.Bool // it may have been heard
}

// begin begins the next try. To know whether it is sent costs something, so it is
// asked only where it matters.
func (t *tries) begin(ctx context.Context) context.Context {
	t.n++
	t.to, t.turn = t.store.servers.now()
	t.began = time.Now()
	if t.how == repeatable {
		return ctx
	}
	t.sent.Store(false)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { t.sent.Store(true) }})
}

// failed is the error of the call, or nil to try again.
func (t *tries) failed(ctx context.Context, err error) error {
	s, code := t.store, connect.CodeOf(err)
	if fault, answered := wire.ReadFault(err); answered {
		t.to.answers()
		if code == connect.CodeUnavailable {
			s.servers.leave(t.turn) // another one may reach the engine
		}
		return s.told(ctx, fault)
	}
	if ctx.Err() != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) && t.to.isSilent(t.began) {
			s.servers.leave(t.turn)
		}
		return s.late(ctx, t.to)
	}
	switch code {
	case connect.CodeUnauthenticated: // nothing was done, and the token may have been replaced
		if changed, _ := s.token.read(); changed && !t.renewed {
			t.renewed = true
			return nil
		}
	case connect.CodeUnavailable, connect.CodeUnknown, connect.CodeInternal, connect.CodeCanceled, connect.CodeDeadlineExceeded:
		s.servers.leave(t.turn)
		if isRefused(err) {
			t.unreached++
		}
		unheard := t.how != repeatable && !t.sent.Load()
		switch {
		case (t.how == repeatable || unheard) && t.n <= len(s.servers.all) && t.unreached < len(s.servers.all):
			return nil
		case t.how == commanding && !unheard:
			return s.lost(t.to, err)
		}
	}
	return s.fault(t.to, err)
}
