package server

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/x/internal/storerpc"
	"github.com/sema-go/sema/x/internal/wire"
	"github.com/sema-go/sema/x/semav1/semav1connect"
)

// mountRPC mounts the RPC services: the store, for x/remotestore, and the service, for other
// languages. Media types select Connect, gRPC or gRPC-Web.
func (s *Server) mountRPC(mux *http.ServeMux) {
	path, handler := storerpc.NewHandler(storeAPI{s.service}, codecs())
	s.store = handler
	mux.Handle(path, s.identified("rpc store", handler))
	path, service := semav1connect.NewSemaServiceHandler(rpcAPI{s.service}, connect.WithReadMaxBytes(int(s.service.options.Limits.Body)), codecs())
	mux.Handle(path, s.identified("rpc service", service))
}

// identified authenticates requests and calls a handler with the call in the request's
// context.
func (s *Server) identified(name string, handler http.Handler) http.Handler {
	rejected := connect.NewErrorWriter()
	return s.observe("RPC "+name, func(w *responseWriter, r *http.Request) {
		token, ok := bearer(r)
		c, err := s.service.identify(r, token, ok)
		if err != nil {
			p := s.service.problemOf(err)
			maps.Copy(w.Header(), p.header)
			if p.Status == http.StatusUnauthorized {
				err = connect.NewError(connect.CodeUnauthenticated, errors.New(p.Detail))
			}
			_ = rejected.Write(w, r, wire.FaultOf(err))
			return
		}
		defer c.finish()
		body := &rpcBody{ReadCloser: r.Body, request: r, header: w.Header(), accounts: s.service.accounts, account: c.account}
		defer body.finish()
		r = r.WithContext(c.withCall(r.Context()))
		r.Body = body
		handler.ServeHTTP(w, r)
	})
}

const (
	// freeBody is the size in bytes up to which a request body is not counted: most are
	// shorter, and the number of connections bounds them.
	freeBody = 64 << 10
	// maxBodies bounds the bytes beyond freeBody of all requests in progress. One principal
	// may use half of it.
	maxBodies = 64 << 20
)

// An rpcBody counts the bytes of a request body for the caller until the request ends: many
// large requests that never end would exhaust the memory. Its read errors are those of
// [bodyError], with a Connect code.
type rpcBody struct {
	io.ReadCloser
	request  *http.Request
	header   http.Header // of the response
	accounts *accounts
	account  *account
	read     int64
	counted  int64
	over     bool
}

// Read implements [io.Reader].
func (b *rpcBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = b.failed(err)
	}
	b.read += int64(n)
	more := b.read - freeBody - b.counted
	if more <= 0 {
		return n, err
	}
	b.counted += more
	mine, everyones := b.account.bodies.Add(more), b.accounts.bodies.Add(more)
	if mine > maxBodies/2 || everyones > maxBodies {
		err = b.exceeded(mine)
	}
	return n, err
}

// failed converts a read error of the body.
func (b *rpcBody) failed(err error) error {
	if b.request.Context().Err() != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	code, why := connect.CodeInvalidArgument, b.accounts.service.problemOf(bodyError(b.request, err))
	if why.Status == http.StatusRequestTimeout {
		code = connect.CodeDeadlineExceeded
	}
	maps.Copy(b.header, why.header)
	return connect.NewError(code, errors.New(why.Detail))
}

// exceeded returns the error of a body that exceeds maxBodies.
func (b *rpcBody) exceeded(mine int64) error {
	b.header.Set("Connection", "close") // the rest of the body is not read; HTTP/2 ignores the header
	if !b.over {
		b.over = true
		b.accounts.service.counted.limited.WithLabelValues("bodies").Inc()
	}
	b.accounts.service.journal.warn("limit bodies", "limit reached", "limit", "large requests", "principal", b.account.principal, "bytes", mine)
	p := (&problem{Status: tooMany, Detail: "too many large requests are in progress: send smaller ones, or fewer at a time"}).retriable(sema.ErrQueueFull)
	return retriable(connect.NewError(connect.CodeResourceExhausted, errors.New(p.Detail)), p)
}

// finish subtracts the counted bytes.
func (b *rpcBody) finish() {
	b.account.bodies.Add(-b.counted)
	b.accounts.bodies.Add(-b.counted)
}

// A jsonCodec is Connect's JSON codec with two differences: errors name the field and no Go
// types, and messages include fields that are false, 0 or empty.
type jsonCodec string

// Name implements [connect.Codec].
func (c jsonCodec) Name() string { return string(c) }

// Marshal implements [connect.Codec].
func (c jsonCodec) Marshal(message any) ([]byte, error) {
	return protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(message.(proto.Message))
}

// Unmarshal implements [connect.Codec]. It ignores unknown fields, which newer clients may
// send.
func (c jsonCodec) Unmarshal(raw []byte, message any) error {
	if len(raw) == 0 {
		return errors.New("want a JSON object, the body is empty")
	}
	if err := storerpc.CheckSize(raw, message, true); err != nil {
		return err
	}
	err := protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(raw, message.(proto.Message))
	if err == nil {
		return nil
	}
	_, where, found := strings.Cut(err.Error(), "(line") // skip the library's name
	if !found {
		return errors.New("the body is not complete JSON")
	}
	return errors.New("(line" + where)
}

// A protoCodec is Connect's protobuf codec, with errors that name no Go types.
type protoCodec struct{}

// Name implements [connect.Codec].
func (protoCodec) Name() string { return "proto" }

// Marshal implements [connect.Codec].
func (protoCodec) Marshal(message any) ([]byte, error) { return proto.Marshal(message.(proto.Message)) }

// MarshalAppend lets Connect reuse its buffers.
func (protoCodec) MarshalAppend(to []byte, message any) ([]byte, error) {
	return proto.MarshalOptions{}.MarshalAppend(to, message.(proto.Message))
}

// Unmarshal implements [connect.Codec].
func (protoCodec) Unmarshal(raw []byte, message any) error {
	err := storerpc.CheckSize(raw, message, false)
	if err == nil {
		err = proto.Unmarshal(raw, message.(proto.Message))
	}
	if err != nil {
		return errors.New("the body is not a protobuf message of this request, or contains text that is not UTF-8")
	}
	return nil
}

// codecs returns codecs for all media types that Connect supports.
func codecs() connect.HandlerOption {
	return connect.WithHandlerOptions(connect.WithCodec(jsonCodec("json")), connect.WithCodec(jsonCodec("json; charset=utf-8")), connect.WithCodec(protoCodec{}))
}
