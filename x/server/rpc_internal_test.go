package server

import (
	"strings"
	"testing"

	"github.com/sema-go/sema/x/semav1"
)

// TestCodecs_RejectBatchesOfTooMany checks that a small request is not decoded into hundreds of
// megabytes: the codecs count bytes before decoding, and operations after it.
func TestCodecs_RejectBatchesOfTooMany(t *testing.T) {
	t.Parallel()
	for name, codec := range map[string]struct {
		unmarshal func([]byte, any) error
		body      string
	}{
		"protobuf": {protoCodec{}.Unmarshal, "\x0a\x01a" + strings.Repeat("\x32\x00", 500_000)},
		"JSON":     {jsonCodec("json").Unmarshal, `{"name":"a","ops":[` + strings.Repeat("{},", 300_000) + `{}]}`},
	} {
		m := &semav1.StoreApplyRequest{}
		if err := codec.unmarshal([]byte(codec.body), m); err == nil || len(m.Ops) > 0 {
			t.Errorf("%s: %d bytes were decoded into %d operations, %v", name, len(codec.body), len(m.Ops), err)
		}
	}
}
