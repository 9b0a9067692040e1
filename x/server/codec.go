package server

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/sema-go/sema/x/internal/storerpc"
)

// A jsonCodec is Connect's own, with errors that name the field and no types of Go, and
// with the values that are false, 0 or empty.
type jsonCodec string

// Name implements [connect.Codec].
func (c jsonCodec) Name() string { return string(c) }

// Marshal implements [connect.Codec].
func (c jsonCodec) Marshal(message any) ([]byte, error) {
	return protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(message.(proto.Message))
}

// Unmarshal implements [connect.Codec]. Fields of newer clients are ignored.
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
	_, where, found := strings.Cut(err.Error(), "(line") // after the name of the library
	if !found {
		return errors.New("the body is not complete JSON")
	}
	return errors.New("(line" + where)
}

// A protoCodec is Connect's own for protobuf, with errors that have no types of Go.
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
		return errors.New("the body is no protobuf message of this request, or has text that is not UTF-8")
	}
	return nil
}

// codecs are for all media types that Connect knows.
func codecs() connect.HandlerOption {
	return connect.WithHandlerOptions(connect.WithCodec(jsonCodec("json")), connect.WithCodec(jsonCodec("json; charset=utf-8")), connect.WithCodec(protoCodec{}))
}

// An rpcBody has the errors of [unread] for one that cannot be read, with a code.
type rpcBody struct {
	io.ReadCloser
	request *http.Request
	header  http.Header // of the response
}

func (b *rpcBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == nil || err == io.EOF || b.request.Context().Err() != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	code, why := connect.CodeInvalidArgument, problemOf(unread(b.request, err))
	if why.Status == http.StatusRequestTimeout {
		code = connect.CodeDeadlineExceeded
	}
	for key, values := range why.header {
		b.header[key] = values
	}
	return n, connect.NewError(code, errors.New(why.Detail))
}
