package server

import (
	"strings"
	"testing"

	"github.com/sema-go/sema/x/semav1"
)

// A small request must not be decoded into hundreds of megabytes: bytes are counted
// before, and operations after.
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
