//go:build !386 && !arm && !mips && !mipsle

package posix_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host/posix"
)

func TestCreate_AndOpen(t *testing.T) {
	t.Parallel()
	name := uniqueName(t)
	_, err := posix.Open(name)
	wantErr(t, err, fs.ErrNotExist)
	s, err := posix.Create(name, 0o640, 3, true)
	wantErr(t, err, nil)
	_, err = posix.Create(name, 0o600, 9, true)
	wantErr(t, err, fs.ErrExist)
	second, err := posix.Create("//"+name[1:], 0o600, 9, false)
	wantErr(t, err, nil)
	third, err := posix.Open(name[1:])
	wantErr(t, err, nil)
	second.TryWait()
	for _, s := range []*posix.Semaphore{s, second, third} {
		wantState(t, s, 2, 0)
		if s.Name() != name {
			t.Errorf("name %q, want %q", s.Name(), name)
		}
	}
	wantErr(t, posix.Unlink(name), nil)
	wantErr(t, posix.Unlink(name), fs.ErrNotExist)
	s.Post()
	wantState(t, third, 3, 0)
	fourth, err := posix.Create(name, 0o600, 7, false)
	wantErr(t, err, nil)
	wantState(t, fourth, 7, 0)
	wantState(t, third, 3, 0)
}

func TestCreate_HonoursModeAndUmask(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o027))
	name := uniqueName(t)
	if _, err := posix.Create(name, 0o666, 0, true); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(posix.FileOf(name))
	if err != nil || info.Mode() != 0o640 || info.Size() != 32 {
		t.Errorf("mode %v, size %d, error %v", info.Mode(), info.Size(), err)
	}
}

func TestOpen_WithoutPermission(t *testing.T) {
	t.Parallel()
	s := create(t, 1)
	if err := os.Chmod(posix.FileOf(s.Name()), 0); err != nil {
		t.Fatal(err)
	}
	asOtherUser := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		syscall.RawSyscall(syscall.SYS_SETFSUID, 65534, 0, 0)
		_, err := posix.Open(s.Name())
		asOtherUser <- err
	}()
	err := <-asOtherUser
	wantErr(t, err, fs.ErrPermission)
	if !strings.Contains(err.Error(), "read and write") {
		t.Errorf("%v does not contain what is needed", err)
	}
}

func TestOpen_RejectsInvalidNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "/", "///", "a/b", "/a/", "/../x", "a\x00b", strings.Repeat("x", 252)} {
		_, err := posix.Open(name)
		wantErr(t, err, sema.ErrInvalid)
		_, err = posix.Create(name, 0o600, 1, false)
		wantErr(t, err, sema.ErrInvalid)
		wantErr(t, posix.Unlink(name), sema.ErrInvalid)
	}
}

func TestOpen_RejectsOtherFiles(t *testing.T) {
	t.Parallel()
	target := create(t, 1)
	cases := map[string]struct {
		put  func(file string) error
		want error
		text string
	}{
		"truncated":       {func(f string) error { return os.WriteFile(f, make([]byte, 16), 0o600) }, sema.ErrInvalid, "16 bytes"},
		"empty":           {func(f string) error { return os.WriteFile(f, nil, 0o600) }, sema.ErrInvalid, "0 bytes"},
		"other C library": {func(f string) error { return os.WriteFile(f, make([]byte, 32), 0o600) }, errors.ErrUnsupported, "glibc"},
		"other content": {func(f string) error {
			return os.WriteFile(f, []byte("\xff\xff\xff\xff\xff\xff\xff\xff"+"\x80\x00\x00\x00"+strings.Repeat("\x00", 20)), 0o600)
		}, sema.ErrInvalid, "4294967295"},
		"link": {func(f string) error { return os.Symlink(posix.FileOf(target.Name()), f) }, syscall.ELOOP, "symbolic link"},
		"pipe": {func(f string) error { return syscall.Mkfifo(f, 0o600) }, sema.ErrInvalid, "not a regular file"},
	}
	for what, c := range cases {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			name := uniqueName(t)
			if err := c.put(posix.FileOf(name)); err != nil {
				t.Fatal(err)
			}
			for _, open := range []func() (*posix.Semaphore, error){
				func() (*posix.Semaphore, error) { return posix.Open(name) },
				func() (*posix.Semaphore, error) { return posix.Create(name, 0o600, 1, false) },
			} {
				_, err := open()
				wantErr(t, err, c.want)
				if !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), name) {
					t.Errorf("%v does not contain %q and %q", err, c.text, name)
				}
			}
			if i := listed(t, name); i == nil || i.Err == nil {
				t.Errorf("listed as %+v, want an error", i)
			}
		})
	}
}

func listed(t *testing.T, name string) *posix.Info {
	t.Helper()
	list, err := posix.List()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSortedFunc(list, func(a, b posix.Info) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("not sorted by name")
	}
	if i := slices.IndexFunc(list, func(i posix.Info) bool { return i.Name == name }); i >= 0 {
		return &list[i]
	}
	return nil
}

func TestList_ReturnsValueAndWaiters(t *testing.T) {
	t.Parallel()
	idle, busy := create(t, 5), create(t, 0)
	served := startWait(t.Context(), busy)
	awaitSleepers(t, busy, 1)
	if i := listed(t, idle.Name()); i == nil || *i != (posix.Info{Name: idle.Name(), Mode: 0o600, Value: 5}) {
		t.Errorf("idle: %+v", i)
	}
	if i := listed(t, busy.Name()); i == nil || *i != (posix.Info{Name: busy.Name(), Mode: 0o600, Waiters: 1}) {
		t.Errorf("busy: %+v", i)
	}
	wantErr(t, posix.Unlink(idle.Name()), nil)
	if i := listed(t, idle.Name()); i != nil {
		t.Errorf("unlinked: %+v", i)
	}
	busy.Post()
	wantErr(t, result(t, served), nil)
}

func TestSemaphore_UnlinkOnCloseKeepsANewSemaphore(t *testing.T) {
	t.Parallel()
	s := create(t, 1)
	s.UnlinkOnClose()
	wantErr(t, s.Close(), nil)
	wantErr(t, posix.Unlink(s.Name()), fs.ErrNotExist)

	old, err := posix.Create(s.Name(), 0o600, 1, true)
	wantErr(t, err, nil)
	old.UnlinkOnClose()
	wantErr(t, posix.Unlink(s.Name()), nil)
	wantErr(t, old.Close(), nil)

	old, err = posix.Create(s.Name(), 0o600, 1, true)
	wantErr(t, err, nil)
	old.UnlinkOnClose()
	wantErr(t, posix.Unlink(s.Name()), nil)
	_, err = posix.Create(s.Name(), 0o600, 2, true)
	wantErr(t, err, nil)
	wantErr(t, old.Close(), nil)
	wantErr(t, posix.Unlink(s.Name()), nil) // the new semaphore was kept
}

func TestCreate_RacingCreatorsShareOneSemaphore(t *testing.T) {
	t.Parallel()
	old, _ := filepath.Glob(posix.DraftPattern) // of processes that were killed
	for _, exclusive := range []bool{false, true} {
		t.Run(fmt.Sprintf("exclusive=%t", exclusive), func(t *testing.T) {
			t.Parallel()
			for range 30 {
				name := uniqueName(t)
				var created, taken atomic.Int64
				var wg sync.WaitGroup
				for range 6 {
					wg.Go(func() {
						s, err := posix.Create(name, 0o600, 4, exclusive)
						if exclusive && errors.Is(err, fs.ErrExist) {
							return
						}
						if err != nil {
							t.Error(err)
							return
						}
						created.Add(1)
						if s.TryWait() {
							taken.Add(1)
						}
					})
				}
				wg.Wait()
				if exclusive && created.Load() != 1 || !exclusive && (created.Load() != 6 || taken.Load() != 4) {
					t.Fatalf("%d created, %d permits of 4 taken", created.Load(), taken.Load())
				}
			}
			eventually(t, "no drafts left", func() bool {
				drafts, _ := filepath.Glob(posix.DraftPattern)
				return !slices.ContainsFunc(drafts, func(draft string) bool { return !slices.Contains(old, draft) })
			})
		})
	}
}

func TestInit_RejectsInvalidMemory(t *testing.T) {
	t.Parallel()
	_, page := sharedPage(t)
	for what, mem := range map[string][]byte{"none": nil, "short": page[:31], "unaligned": page[4:]} {
		_, err := posix.Init(mem, 1)
		wantErr(t, err, sema.ErrInvalid)
		_, err = posix.Attach(mem)
		if wantErr(t, err, sema.ErrInvalid); what == "short" && !strings.Contains(err.Error(), "31 bytes") {
			t.Error(err)
		}
	}
	_, err := posix.Attach(page) // it contains no semaphore
	wantErr(t, err, errors.ErrUnsupported)
	_, err = posix.Init(page, posix.MaxValue+1)
	wantErr(t, err, sema.ErrInvalid)
	if slices.ContainsFunc(page, func(b byte) bool { return b != 0 }) {
		t.Error("a rejected Init changed the memory")
	}
	s, err := posix.Init(page, 6)
	wantErr(t, err, nil)
	other, err := posix.Attach(page)
	wantErr(t, err, nil)
	s.TryWait()
	wantState(t, other, 5, 0)
}
