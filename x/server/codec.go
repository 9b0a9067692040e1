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
)

// A jsonCodec is Connect's own, with errors that name the field and no types of Go.
type jsonCodec string

// Name implements [connect.Codec].
func (c jsonCodec) Name() string { return string(c) }

// Marshal implements [connect.Codec].
func (c jsonCodec) Marshal(message any) ([]byte, error) {
	return protojson.Marshal(message.(proto.Message))
}

// Unmarshal implements [connect.Codec]. Fields of newer clients are ignored.
func (c jsonCodec) Unmarshal(raw []byte, message any) error {
	if len(raw) == 0 {
		return errors.New("want a JSON object, the body is empty")
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, message.(proto.Message)); err != nil {
		_, what, _ := strings.Cut(err.Error(), "(line") // after the name of the library
		return errors.New("(line" + what)
	}
	return nil
}

// jsonCodecs are for both media types that Connect knows.
func jsonCodecs() connect.HandlerOption {
	return connect.WithHandlerOptions(connect.WithCodec(jsonCodec("json")), connect.WithCodec(jsonCodec("json; charset=utf-8")))
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
