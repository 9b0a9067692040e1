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

// A server that disappears without closing its connections is detected by timeouts.
// Holders rely on their leases for ten seconds by default. The client has to reach the
// next server within that time.
const (
	dialTimeout   = 2 * time.Second
	pingInterval  = 2 * time.Second // without traffic on a connection, before a ping is sent
	pingTimeout   = 1500 * time.Millisecond
	failoverAfter = time.Second // without a reply, after which the next server is used

	// maxReply bounds a reply in bytes. A semaphore with a hundred thousand holders
	// needs that much.
	maxReply = 64 << 20
)

// newTransport returns the transport for all calls. Without TLS it uses HTTP/2 with prior
// knowledge: all calls share a connection, and pings detect soon when it is lost.
func newTransport(secure *tls.Config) *http.Transport {
	t := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: pingInterval * 2}).DialContext,
		TLSClientConfig:     secure,
		TLSHandshakeTimeout: dialTimeout,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 64, // for a proxy that supports only HTTP/1.1
		IdleConnTimeout:     90 * time.Second,
		Protocols:           &http.Protocols{},
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingInterval, PingTimeout: pingTimeout, WriteByteTimeout: pingInterval},
	}
	if secure == nil {
		t.Protocols.SetUnencryptedHTTP2(true)
	} else {
		t.Protocols.SetHTTP2(true)
		t.Protocols.SetHTTP1(true)
	}
	return t
}

// servers are the servers of the service. All calls go to one of them until it does not
// reply.
type servers struct {
	all  []*server
	turn atomic.Uint32 // modulo len(all), the index of the server in use; never decreases
}

// A server is one server of the service.
type server struct {
	address      string
	client       semav1connect.StoreServiceClient
	noReplySince atomic.Pointer[time.Time] // start of the first call without a reply; nil after a reply
}

// noteReply records that the server has replied.
func (s *server) noteReply() {
	if s.noReplySince.Load() != nil {
		s.noReplySince.Store(nil)
	}
}

// noteTimeout records that the deadline of a call, which began at the given time, has
// passed without a reply. It reports whether the server has not replied for
// failoverAfter.
func (s *server) noteTimeout(began time.Time) bool {
	s.noReplySince.CompareAndSwap(nil, &began)
	// The time is monotonic: a clock that is set back would delay the failover.
	if since := s.noReplySince.Load(); since == nil || time.Since(*since) < failoverAfter { // nil: another call has a reply
		return false
	}
	s.noReplySince.Store(nil) // start afresh when the server is used again
	return true
}

func newServers(addresses []string, secure bool, transport http.RoundTripper, t *token) *servers {
	list := &servers{}
	scheme := "http://"
	if secure {
		scheme = "https://"
	}
	for _, address := range addresses {
		list.all = append(list.all, &server{address: address, client: semav1connect.NewStoreServiceClient(
			&http.Client{Transport: transport, CheckRedirect: rejectRedirects}, scheme+address,
			connect.WithInterceptors(t), connect.WithAcceptCompression("gzip", nil, nil), connect.WithReadMaxBytes(maxReply),
		)})
	}
	list.turn.Store(rand.Uint32N(uint32(len(addresses)))) // spread clients over the servers
	return list
}

// rejectRedirects makes the client return redirects instead of following them: the token
// is only for the configured hosts.
func rejectRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// current returns the server in use and its turn.
func (s *servers) current() (*server, uint32) {
	turn := s.turn.Load()
	return s.all[turn%uint32(len(s.all))], turn
}

// failOver selects the next server. Only the first call for a turn has an effect.
func (s *servers) failOver(turn uint32) { s.turn.CompareAndSwap(turn, turn+1) }

// A retryPolicy selects what happens if a reply is lost. A request that was certainly not
// sent is always sent again.
type retryPolicy int

const (
	repeatable    retryPolicy = iota // send the request again
	callerRepeats                    // the caller opens another session, and the unused one expires
	neverRepeat                      // the command may have been applied, and would fail the second time
)

// call sends a request to one server after the other until there is a reply. It tries
// each server once and the first one again, which may only have closed the connection.
func call[Req, Res any](
	ctx context.Context, s *Store, policy retryPolicy, request *Req, send func(semav1connect.StoreServiceClient, context.Context, *Req) (*Res, error),
) (*Res, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	t := &attempts{store: s, policy: policy}
	if policy != repeatable { // only then, since the trace costs time
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { t.sent.Store(true) }})
	}
	for {
		t.n++
		t.began = time.Now()
		t.to, t.turn = s.servers.current()
		t.sent.Store(false)
		reply, err := send(t.to.client, ctx, request)
		if err == nil {
			t.to.noteReply()
			return reply, nil
		}
		if err := t.handleError(ctx, err); err != nil {
			return nil, err
		}
	}
}

// attempts are the attempts of one call.
type attempts struct {
	store        *Store
	policy       retryPolicy
	n            int  // number of attempts
	notListening int  // number of attempts that failed because no process listens
	tokenReread  bool // the token was read again

	// The present attempt.
	to    *server
	turn  uint32
	began time.Time
	sent  atomic.Bool // the request may have been sent
}

// handleError returns the error of the call, or nil to try again.
func (t *attempts) handleError(ctx context.Context, err error) error {
	s, code := t.store, connect.CodeOf(err)
	if fault, ok := wire.ReadFault(err); ok {
		t.to.noteReply()
		if code == connect.CodeUnavailable {
			s.servers.failOver(t.turn) // another server may reach the store
		}
		return s.remoteError(ctx, fault)
	}
	if ctx.Err() != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) && t.to.noteTimeout(t.began) {
			s.servers.failOver(t.turn)
		}
		return s.contextError(ctx, t.to)
	}
	switch code {
	case connect.CodeUnauthenticated: // nothing was applied, and the token may have been replaced
		if changed, _ := s.token.read(); changed && !t.tokenReread {
			t.tokenReread = true
			return nil
		}
	case connect.CodeUnavailable, connect.CodeUnknown, connect.CodeInternal, connect.CodeCanceled, connect.CodeDeadlineExceeded:
		s.servers.failOver(t.turn)
		if isNotListening(err) {
			t.notListening++
		}
		notSent := t.policy != repeatable && !t.sent.Load()
		switch {
		case (t.policy == repeatable || notSent) && t.n <= len(s.servers.all) && t.notListening < len(s.servers.all):
			return nil
		case t.policy == neverRepeat && !notSent:
			return s.lostReplyError(t.to, err)
		}
	}
	return s.fault(t.to, err)
}
