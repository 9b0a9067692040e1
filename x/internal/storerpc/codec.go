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
	// decoded: an operation may take two bytes in a request and takes more than a
	// hundred in memory.
	maxElements = 4096
	// maxJSON bounds a JSON request in bytes, since its operations are counted only
	// after decoding. Programs use the binary form.
	maxJSON = 64 << 10
)

// codecs returns the codecs of Connect, with bounds on the size of a decoded request.
func codecs() connect.HandlerOption {
	return connect.WithHandlerOptions(
		connect.WithCodec(binaryCodec{}), connect.WithCodec(jsonCodec("json")), connect.WithCodec(jsonCodec("json; charset=utf-8")))
}

// CheckSize returns an error for a batch that would take too much memory when decoded:
// JSON that is too long, or more fields than the largest batch that a server applies.
// Codecs that replace those of a [Handler] call it before they decode.
func CheckSize(raw []byte, message any, json bool) error {
	if _, batch := message.(*semav1.StoreApplyRequest); !batch {
		return nil
	}
	if json {
		if len(raw) > maxJSON {
			return fmt.Errorf("%d bytes of JSON: want %d at most, or the binary form", len(raw), maxJSON)
		}
		return nil
	}
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

type binaryCodec struct{}

// Name implements [connect.Codec].
func (binaryCodec) Name() string { return "proto" }

// Marshal implements [connect.Codec].
func (binaryCodec) Marshal(message any) ([]byte, error) {
	return proto.Marshal(message.(proto.Message))
}

// MarshalAppend lets Connect marshal into a pooled buffer.
func (binaryCodec) MarshalAppend(to []byte, message any) ([]byte, error) {
	return proto.MarshalOptions{}.MarshalAppend(to, message.(proto.Message))
}

// Unmarshal implements [connect.Codec].
func (binaryCodec) Unmarshal(raw []byte, message any) error {
	if err := CheckSize(raw, message, false); err != nil {
		return err
	}
	return proto.Unmarshal(raw, message.(proto.Message))
}

// A jsonCodec is a JSON codec. Its value is the name of a media type that Connect knows.
type jsonCodec string

// Name implements [connect.Codec].
func (c jsonCodec) Name() string { return string(c) }

// Marshal implements [connect.Codec].
func (jsonCodec) Marshal(message any) ([]byte, error) {
	return protojson.Marshal(message.(proto.Message))
}

// Unmarshal implements [connect.Codec]. It ignores unknown fields, which newer clients may
// send.
func (jsonCodec) Unmarshal(raw []byte, message any) error {
	switch {
	case len(raw) == 0:
		return errors.New("want a JSON object, the body is empty")
	case len(raw) > maxJSON:
		return fmt.Errorf("%d bytes of JSON: want %d at most, or the binary form", len(raw), maxJSON)
	}
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(raw, message.(proto.Message))
}
