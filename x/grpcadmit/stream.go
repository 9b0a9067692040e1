package grpcadmit

import (
	"context"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sema-go/sema/admit"
)

// StreamClient returns an interceptor for the streams of a client. The permit is held until
// the stream has ended: a receive failed or returned io.EOF, Header or a send failed, or the
// context of the call ended. A caller that abandons a stream must cancel its context, as
// grpc-go requires anyway.
func (i Interceptor) StreamClient() grpc.StreamClientInterceptor {
	i.check()
	return func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		a, err := i.admitClient(ctx, method)
		if err != nil {
			return nil, StatusOf(err).Err()
		}
		opened := false
		defer func() {
			if !opened {
				a.Done(admit.Failed)
			}
		}()
		stream, err := streamer(ctx, desc, conn, method, opts...)
		if err != nil {
			a.Done(ResultOf(ctx, err))
			return nil, err
		}
		opened = true
		s := &clientStream{ClientStream: stream, a: a, ctx: ctx, single: !desc.ServerStreams}
		s.stop = context.AfterFunc(ctx, func() { a.Done(ResultOf(ctx, status.FromContextError(ctx.Err()).Err())) })
		return s, nil
	}
}

// A clientStream is a stream of a client that holds a permit.
type clientStream struct {
	grpc.ClientStream
	a      admit.Admission
	ctx    context.Context
	single bool // the server sends one message
	stop   func() bool
}

// RecvMsg implements [grpc.ClientStream].
func (s *clientStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	switch {
	case err == io.EOF, err == nil && s.single:
		s.done(admit.OK)
	case err != nil:
		s.done(ResultOf(s.ctx, err))
	}
	return err
}

// SendMsg implements [grpc.ClientStream]. io.EOF means that RecvMsg returns the status.
func (s *clientStream) SendMsg(m any) error {
	err := s.ClientStream.SendMsg(m)
	if err != nil && err != io.EOF {
		s.done(ResultOf(s.ctx, err))
	}
	return err
}

// Header implements [grpc.ClientStream].
func (s *clientStream) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	if err != nil {
		s.done(ResultOf(s.ctx, err))
	}
	return md, err
}

func (s *clientStream) done(o admit.Result) {
	s.stop()
	s.a.Done(o)
}
