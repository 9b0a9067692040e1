//go:build linux && !sema_portable

package host_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host"
)

func TestBadFiles_ListsUnusableFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	held := openIn(t, dir, "held", 1)
	mustAcquire(t, held, 1)
	openIn(t, dir, "unused", 1).Close()
	startUser(t, dir, "elsewhere", 1)
	write("not-one.txt", []byte("text"))
	write("empty.sema", nil) // Open creates a semaphore
	older := append([]byte("sehost1\x00"), make([]byte, 12<<10)...)
	want := map[string]struct {
		name string
		err  error
	}{
		write("foreign.sema", []byte("the only copy of my thesis")):  {"foreign", sema.ErrInvalid},
		write("other-version.sema", older):                           {"other-version", sema.ErrInvalid},
		write("a%%b.sema", []byte("x")):                              {"", sema.ErrInvalid},
		write("half.sema", append([]byte("sehost0\x00"), "half"...)): {"half", host.ErrDamaged},
	}
	for name, damage := range map[string]func(path string) error{
		"used-here":      func(path string) error { return writeInto(path, make([]byte, 100)) },
		"used-elsewhere": func(path string) error { return writeInto(path, make([]byte, 100)) },
		"for-all":        func(path string) error { return os.Chmod(path, 0o666) },
		"directory":      func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
		"pipe":           func(path string) error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) },
	} {
		path := filepath.Join(dir, name+".sema")
		reason := sema.ErrInvalid
		switch name {
		case "used-here":
			openIn(t, dir, name, 1)
			reason = host.ErrDamaged
		case "used-elsewhere":
			startUser(t, dir, name, 1)
			reason = host.ErrDamaged
		default:
			write(name+".sema", nil)
		}
		if err := damage(path); err != nil {
			t.Fatal(err)
		}
		want[path] = struct {
			name string
			err  error
		}{name, reason}
	}
	bad, err := host.BadFiles(host.Dir(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bad {
		w, expected := want[b.Path]
		if !expected || b.Name != w.name || !errors.Is(b.Err, w.err) || sema.Hint(b.Err) == "" {
			t.Errorf("%+v (hint %q), want %+v", b, sema.Hint(b.Err), w)
		}
		delete(want, b.Path)
	}
	for path := range want {
		t.Errorf("%s is missing", path)
	}
	// Nothing was changed, and the locks of this process are kept.
	if content, err := os.ReadFile(filepath.Join(dir, "foreign.sema")); err != nil || string(content) != "the only copy of my thesis" {
		t.Errorf("%q %v", content, err)
	}
	other := startUser(t, dir, "held", 1)
	other.Send("try 1")
	other.Expect("full")
	infos, err := host.List(host.Dir(dir))
	if err != nil || len(infos) != 3 {
		t.Errorf("%+v %v, want elsewhere, held and unused", infos, err)
	}
}
