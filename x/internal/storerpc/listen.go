package storerpc

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"

	"github.com/sema-go/sema/x/internal/notify"
	"github.com/sema-go/sema/x/internal/wire"
	"github.com/sema-go/sema/x/semav1"
)

// Listen implements [semav1connect.StoreServiceHandler]. It ends after its lifetime, with
// the client's connection, when the server shuts down, and when the store's Listen
// returns.
func (s *service) Listen(ctx context.Context, m *semav1.StoreListenRequest, to *connect.ServerStream[semav1.StoreListenResponse]) error {
	if len(m.Instance) > maxText {
		return wire.FaultOf(invalid("listen", "", "the instance's name is too long"))
	}
	listening, stop := context.WithCancel(ctx)
	inbox, ended := notify.NewInbox(), make(chan error, 1)
	go func() { ended <- s.store.Listen(listening, string(m.Instance), inbox.Add) }()
	err := s.forward(ctx, to, inbox, ended)
	stop()
	<-ended // the store may be closed once all handlers have returned
	return err
}

var errShutdown = errors.New("this server is shutting down")

// forward sends notifications and heartbeats until the stream ends.
func (s *service) forward(ctx context.Context, to *connect.ServerStream[semav1.StoreListenResponse], inbox *notify.Inbox, ended chan error) error {
	ticker := time.NewTicker(s.handler.Heartbeat)
	defer ticker.Stop()
	life := s.handler.Lifetime
	expiry := time.NewTimer(life - life/8 + rand.N(life/4+1)) // spread the ends of streams
	defer expiry.Stop()
	if err := to.Send(&semav1.StoreListenResponse{Heartbeat: s.handler.Heartbeat.Microseconds()}); err != nil {
		return err
	}
	for {
		var names []string
		select {
		case <-ctx.Done():
			return wire.FaultOf(context.Cause(ctx))
		case <-s.handler.ctx.Done():
			return connect.NewError(connect.CodeUnavailable, errShutdown)
		case <-expiry.C:
			return nil
		case err := <-ended:
			ended <- err
			return wire.FaultOf(err)
		case <-ticker.C:
		case <-inbox.Ready():
			names = inbox.Take()
		}
		if err := to.Send(&semav1.StoreListenResponse{Names: names}); err != nil {
			return err
		}
	}
}
