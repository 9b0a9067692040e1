//go:build linux && sema_portable

package host_test

import (
	"errors"
	"os/exec"
	"testing"

	"github.com/sema-go/sema/host"
)

func TestInherit_IsUnsupported(t *testing.T) {
	t.Parallel()
	sem, _, _ := open(t, 1)
	wantErr(t, host.Inherit(mustAcquire(t, sem, 1), exec.Command("true")), errors.ErrUnsupported)
}
