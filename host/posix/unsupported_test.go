//go:build !linux || 386 || arm || mips || mipsle

package posix_test

import (
	"errors"
	"testing"

	"github.com/sema-go/sema/host/posix"
)

func TestOpen_IsUnsupported(t *testing.T) {
	mem := make([]byte, 64)
	for what, try := range map[string]func() error{
		"Open":   func() error { _, err := posix.Open("/x"); return err },
		"Create": func() error { _, err := posix.Create("/x", 0o600, 1, false); return err },
		"New":    func() error { _, err := posix.New(1); return err },
		"Init":   func() error { _, err := posix.Init(mem, 1); return err },
		"Attach": func() error { _, err := posix.Attach(mem); return err },
		"List":   func() error { _, err := posix.List(); return err },
		"Unlink": func() error { return posix.Unlink("/x") },
	} {
		if err := try(); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
