package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sema-go/sema/host"
)

func TestShownHasNoSecrets(t *testing.T) {
	t.Parallel()
	for store, want := range map[string]string{
		"":                            "host:",
		"host:":                       "host:",
		"host:?dir=/x&group=build":    "host: dir=/x&group=build",
		"mem:":                        "mem:",
		"sqlite:relative.db?prefix=a": "sqlite:relative.db",
		"sqlite:///var/lib/a.db":      "sqlite:///var/lib/a.db",
		"redis://user:secret@h:1/0?sentinel_password=pst": "redis://h:1/0",
		"postgres://u:secret@h/db?password=secret":        "postgres://h/db",
		"redis://%zz:secret@h":                            "the store",
	} {
		if got := Shown(store); got != want {
			t.Errorf("%q is shown as %q, want %q", store, got, want)
		}
	}
}

func TestHostOptions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	opts, err := HostOptions("host:?dir=" + dir)
	if err != nil {
		t.Fatal(err)
	}
	if where, err := host.Where(opts...); where != dir || err != nil {
		t.Errorf("%s, %v", where, err)
	}
	for _, store := range []string{"host:?dir=a&dir=b", "host:?colour=blue", "host:?%zz"} {
		if _, err := HostOptions(store); CodeOf(err) != Usage {
			t.Errorf("%s: %v", store, err)
		}
	}
}

func TestCodes(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for code, err := range map[int]error{
		0: nil, 64: errors.New("unknown flag"), 69: fmt.Errorf("wrapped: %w", Unreached(refused)), 1: &Error{Code: Problems, Err: refused, Said: true},
	} {
		if got := CodeOf(err); got != code {
			t.Errorf("%v ends with %d, want %d", err, got, code)
		}
	}
	if err := Unreached(refused); !errors.Is(err, refused) || !strings.Contains(err.Error(), "try 'sema doctor'") || WasSaid(err) {
		t.Error(err)
	}
	if !WasSaid(fmt.Errorf("wrapped: %w", &Error{Err: refused, Said: true})) {
		t.Error("what was said is said again")
	}
}
