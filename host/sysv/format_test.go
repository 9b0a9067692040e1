//go:build linux && (amd64 || arm64 || riscv64 || loong64)

package sysv_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sema-go/sema/host/sysv"
)

func wantText(t *testing.T, value any, want string) {
	t.Helper()
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(format, value); got != want {
			t.Errorf("%s: got %s, want %s", format, got, want)
		}
	}
}

func TestGate_String(t *testing.T) {
	gate, set := newGate(t, 3)
	wantText(t, set, fmt.Sprintf("set %q: id %d, 1 semaphores", set.Name(), set.ID()))
	p := acquire(t, gate, 2)
	wantText(t, gate, fmt.Sprintf("gate %q: 2 of 3 in use, 0 waiting", gate.Name()))
	wantText(t, p, fmt.Sprintf("permit of %q: 2, held", gate.Name()))
	p.Release()
	must(t, set.Remove())
	if got := gate.String(); !strings.HasPrefix(got, fmt.Sprintf("gate %q: ", gate.Name())) || !strings.Contains(got, "removed") {
		t.Error(got)
	}
	_, err := set.Value(0)
	wantText(t, err, err.Error())
	wantText(t, new(sysv.Set), "set: zero value, create it with sysv.Create or sysv.Open")
	wantText(t, new(sysv.Gate), "gate: zero value, create it with sysv.AsGate")
	wantText(t, (*sysv.Set)(nil), "<nil>")
	wantText(t, (*sysv.Gate)(nil), "<nil>")
}
