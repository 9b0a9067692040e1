package storerpc

import (
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/sema-go/sema/x/semav1"
)

const (
	// maxElements bounds the operations and metadata of a batch before they are
	// decoded: two bytes of a request are an operation of more than a hundred.
	maxElements = 4096
	// maxJSON bounds a request in JSON, whose operations are counted only after it was
	// decoded. Programs use the binary form.
	maxJSON = 64 << 10
)

// codecs are those of Connect, with bounds on what a request is decoded into.
func codecs() connect.HandlerOption {
	return connect.WithHandlerOptions(
		connect.WithCodec(binaryCodec{}), connect.WithCodec(jsonCodec("json")), connect.WithCodec(jsonCodec("json; charset=utf-8")))
}

// CheckSize fails on a batch that would be decoded into too much. Codecs that replace
// those of a [Handler] call it before they decode.
func CheckSize(raw []byte, message any, json bool) error {
	switch _, batch := message.(*semav1.StoreApplyRequest); {
	case !batch:
		return nil
	case !json:
		return checkElements(raw)
	case len(raw) > maxJSON:
		return fmt.Errorf("%d bytes of JSON: want %d at most, or the binary form", len(raw), maxJSON)
	}
	return nil
}

type binaryCodec struct{}

// Name implements [connect.Codec].
func (binaryCodec) Name() string { return "proto" }

// Marshal implements [connect.Codec].
func (binaryCodec) Marshal(message any) ([]byte, error) {
	return proto.Marshal(message.(proto.Message))
}

// MarshalAppend is what Connect uses to marshal into a pooled buffer.
func (binaryCodec) MarshalAppend(to []byte, message any) ([]byte, error) {
	return proto.MarshalOptions{}.MarshalAppend(to, message.(proto.Message))
}

// Unmarshal implements [connect.Codec].
func (binaryCodec) Unmarshal(raw []byte, message any) error {
	if _, batch := message.(*semav1.StoreApplyRequest); batch {
		if err := checkElements(raw); err != nil {
			return err
		}
	}
	return proto.Unmarshal(raw, message.(proto.Message))
}

// checkElements fails if a batch has more fields than those of the largest that a
// server applies.
func checkElements(raw []byte) error {
	for fields := 0; len(raw) > 0; fields++ {
		if fields == maxElements {
			return fmt.Errorf("more than %d operations and metadata in a batch", maxElements)
		}
		_, _, n := protowire.ConsumeField(raw)
		if n < 0 {
			return protowire.ParseError(n)
		}
		raw = raw[n:]
	}
	return nil
}

// A jsonCodec has the name of a media type that Connect knows.
type jsonCodec string

// Name implements [connect.Codec].
func (c jsonCodec) Name() string { return string(c) }

// Marshal implements [connect.Codec].
func (jsonCodec) Marshal(message any) ([]byte, error) {
	return protojson.Marshal(message.(proto.Message))
}

// Unmarshal implements [connect.Codec]. Fields of newer clients are ignored.
func (jsonCodec) Unmarshal(raw []byte, message any) error {
	switch {
	case len(raw) == 0:
		return errors.New("want a JSON object, the body is empty")
	case len(raw) > maxJSON:
		return fmt.Errorf("%d bytes of JSON: want %d at most, or the binary form", len(raw), maxJSON)
	}
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(raw, message.(proto.Message))
}
