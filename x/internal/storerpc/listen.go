package storerpc

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/sema-go/sema/x/internal/wire"
	"github.com/sema-go/sema/x/semav1"
)

// Listen is for the StoreService. It ends with its lifetime, with the client's
// connection, when the server shuts down, and with the engine.
func (s *service) Listen(ctx context.Context, m *semav1.StoreListenRequest, to *connect.ServerStream[semav1.StoreListenResponse]) error {
	if len(m.Instance) > maxText {
		return wire.FaultOf(refuse("listen", "", "the instance's name is too long"))
	}
	hearing, stop := context.WithCancel(ctx)
	news, ended := newNews(), make(chan error, 1)
	go func() { ended <- s.store.Listen(hearing, string(m.Instance), news.add) }()
	err := s.tell(ctx, to, news, ended)
	stop()
	<-ended // the store may be closed when all handlers have returned
	return err
}

var errEnding = errors.New("this server is shutting down")

// tell passes on what there is until there is a reason to end.
func (s *service) tell(ctx context.Context, to *connect.ServerStream[semav1.StoreListenResponse], n *news, ended chan error) error {
	beat := time.NewTicker(s.handler.Heartbeat)
	defer beat.Stop()
	life := s.handler.Lifetime
	over := time.NewTimer(life - life/8 + rand.N(life/4+1)) // not that of all others
	defer over.Stop()
	if err := to.Send(&semav1.StoreListenResponse{Heartbeat: s.handler.Heartbeat.Microseconds()}); err != nil {
		return err
	}
	for {
		var names []string
		select {
		case <-ctx.Done():
			return wire.FaultOf(context.Cause(ctx))
		case <-s.handler.life.Done():
			return connect.NewError(connect.CodeUnavailable, errEnding)
		case <-over.C:
			return nil
		case err := <-ended:
			ended <- err
			return wire.FaultOf(err)
		case <-beat.C:
		case <-n.some:
			names = n.take()
		}
		if err := to.Send(&semav1.StoreListenResponse{Names: names}); err != nil {
			return err
		}
	}
}

// news are names that are to be told. A client that is slow to read is told of each
// once, and is in nobody's way.
type news struct {
	mu      sync.Mutex
	pending map[string]bool
	some    chan struct{} // buffered
}

func newNews() *news { return &news{pending: map[string]bool{}, some: make(chan struct{}, 1)} }

func (n *news) add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pending[name] = true
	select {
	case n.some <- struct{}{}:
	default:
	}
}

func (n *news) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	names := slices.Collect(maps.Keys(n.pending))
	clear(n.pending)
	return names
}
