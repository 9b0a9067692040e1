package storerpc

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"

	"github.com/sema-go/sema/x/internal/hints"
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
	news, ended := hints.NewInbox(), make(chan error, 1)
	go func() { ended <- s.store.Listen(hearing, string(m.Instance), news.Add) }()
	err := s.tell(ctx, to, news, ended)
	stop()
	<-ended // the store may be closed when all handlers have returned
	return err
}

var errEnding = errors.New("this server is shutting down")

// tell passes on what there is until there is a reason to end.
func (s *service) tell(ctx context.Context, to *connect.ServerStream[semav1.StoreListenResponse], news *hints.Inbox, ended chan error) error {
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
		case <-news.Some():
			names = news.Take()
		}
		if err := to.Send(&semav1.StoreListenResponse{Names: names}); err != nil {
			return err
		}
	}
}
