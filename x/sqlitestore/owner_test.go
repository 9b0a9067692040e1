package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/proctest"
	"github.com/sema-go/sema/internal/sessiontest"
)

// ownFile opens a file and keeps it open.
func ownFile(c *proctest.Child) {
	_, err := Open(c.Args[0], Options{})
	c.Must(err)
	c.Send("open")
	c.Receive()
}

func TestOwner_IsReleasedWhenKilled(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	link := filepath.Join(t.TempDir(), "link.db")
	owner := proctest.Start(t, "owner", path)
	owner.Expect("open")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, link} {
		_, err := Open(name, Options{})
		if !errors.Is(err, ErrOwned) {
			t.Fatalf("opened by two processes: %v", err)
		}
		for _, part := range []string{path, fmt.Sprint("process ", owner.Pid), "already has an owner"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not contain %q", err, part)
			}
		}
	}
	owner.End()
	openAt(t, link, Options{})
}

// TestOwner_IsReleasedWhileChildrenStart starts children meanwhile: between fork and exec
// a child has all descriptors of its parent.
func TestOwner_IsReleasedWhileChildrenStart(t *testing.T) {
	t.Parallel()
	path, done := newFile(t), make(chan struct{})
	var starting sync.WaitGroup
	starting.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				exec.Command("true").Run()
			}
		}
	})
	for range 1000 {
		o, err := own(path)
		if err != nil {
			t.Error(err)
			break
		}
		time.Sleep(rand.N(time.Millisecond)) // so that some child starts meanwhile
		o.release()
	}
	close(done)
	starting.Wait()
}

func TestStore_StoresOfOneProcessShareAFile(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	link := filepath.Join(t.TempDir(), "link.db")
	a, err := Open(path, Options{Prefix: "a:"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	b, all := openAt(t, link, Options{Prefix: "b:"}), openAt(t, path, Options{})
	inA := sessiontest.Begin(t, a, "s", protocol.Config{Capacity: 1})
	inB := sessiontest.Begin(t, b, "s", protocol.Config{Capacity: 2})
	lease := inA.Granted(1, sessiontest.Acquire(1, 1))
	inB.Granted(2, sessiontest.Acquire(1, 1), sessiontest.Acquire(2, 1))
	sessiontest.WantHeld(t, all, "a:s", lease...)
	for store, want := range map[*Store]string{a: "[s]", b: "[s]", all: "[a:s b:s]"} {
		if names := listed(t, store, protocol.ListQuery{}); fmt.Sprint(names) != want {
			t.Errorf("names %v, want %s", names, want)
		}
	}
	if names := listed(t, all, protocol.ListQuery{Prefix: "a"}); fmt.Sprint(names) != "[a:s]" {
		t.Errorf("names %v, want only those that start with a", names)
	}

	_, err = Open(path, Options{Normal: true})
	if !errors.Is(err, sema.ErrInvalid) || !strings.Contains(err.Error(), "synchronous=full") {
		t.Errorf("opened with another synchronous mode: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	if _, err := a.Inspect(ctx, "s"); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := a.Listen(ctx, "i", func(string) {}); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
	inB.Send()
	sessiontest.WantHeld(t, all, "a:s", lease...) // which is still held
}

func TestStore_CloseWritesEverythingIntoTheFile(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	for range 3 {
		store, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 9})
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path + "-wal"); err == nil {
			t.Error("the log still exists: the connection was not closed")
		}
	}
}

func TestOpen_URLs(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	t.Run("good", func(t *testing.T) {
		t.Parallel()
		for _, name := range []string{"plain.db", "with%20space%3Fand%23.db", "p.db?prefix=x:", "n.db?synchronous=normal&prefix=y", "f.db?synchronous=full"} {
			c, err := fleet.Open(ctx, "sqlite://"+directory+"/"+name)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			s, err := c.Semaphore("a", 1)
			if err != nil {
				t.Fatal(err)
			}
			p, err := s.Acquire(ctx, 1)
			if err != nil {
				t.Fatal(err)
			}
			p.Release()
			if err := c.Close(ctx); err != nil {
				t.Error(err)
			}
		}
		for _, name := range []string{"plain.db", "with space?and#.db"} {
			if _, err := os.Stat(filepath.Join(directory, name)); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("bad", func(t *testing.T) {
		t.Parallel()
		for raw, want := range map[string]string{
			"sqlite:":                                "names no file",
			"sqlite:///":                             "names no file",
			"sqlite://host/path":                     "sqlite:///absolute/path",
			"sqlite://" + directory + "/a?sync=full": "there are: mode, prefix, synchronous",
			"sqlite://" + directory + "/a?synchronous=on":                     "want full or normal",
			"sqlite://" + directory + "/a?prefix=a&prefix=b":                  "2 times",
			"sqlite://" + directory + "/a?prefix=%20":                         "not allowed",
			"sqlite://" + directory + "/a?prefix=" + strings.Repeat("p", 300): "at most 200",
			"sqlite::memory:":                         "mem:",
			"sqlite://" + directory + "/nowhere/a.db": "create it first",
			"sqlite://" + directory:                   "directory",
		} {
			c, err := fleet.Open(ctx, raw)
			if err == nil {
				c.Close(ctx)
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", raw, err, want)
			}
		}
	})
}

func TestOpen_RelativePath(t *testing.T) {
	t.Chdir(t.TempDir())
	c, err := fleet.Open(ctx, "sqlite:relative%20path.db?prefix=a")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat("relative path.db"); err != nil {
		t.Error(err)
	}
}

func TestOpen_RejectsFilesOfOtherPrograms(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ edit, want string }{
		"newer":         {"PRAGMA user_version(99)", "upgrade this program"},
		"other program": {"PRAGMA application_id(7)", "another program"},
		"unmarked":      {"PRAGMA application_id(0)", "another program"},
	} {
		path := newFile(t)
		store, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		edit(t, path, c.edit)
		if _, err := Open(path, Options{}); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
	path := newFile(t)
	if err := os.WriteFile(path, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, Options{}); err == nil || !strings.Contains(err.Error(), "not a database") {
		t.Errorf("no database: %v", err)
	}
}

// unreleased is a part of the schema that versions before the first release wrote.
const unreleased = `
CREATE TABLE semaphore (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, config TEXT NOT NULL);
CREATE TABLE session (semaphore INTEGER NOT NULL, id INTEGER NOT NULL, instance TEXT NOT NULL, seen INTEGER NOT NULL, PRIMARY KEY (semaphore, id));
CREATE TABLE lease (semaphore INTEGER NOT NULL, seq INTEGER NOT NULL, weight INTEGER NOT NULL, meta TEXT NOT NULL, PRIMARY KEY (semaphore, seq));
PRAGMA application_id(0x73656d61);
PRAGMA user_version(2);`

func TestOpen_RejectsFilesOfUnreleasedVersions(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"PRAGMA user_version(1)", "PRAGMA user_version(2)"} {
		path := newFile(t)
		edit(t, path, unreleased+version)
		before := read(t, path)
		_, asOwner := Open(path, Options{})
		_, asReader := OpenReader(path, Options{})
		for _, err := range []error{asOwner, asReader} {
			if err == nil || !strings.Contains(err.Error(), "unreleased version of Sema; delete it") || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v", version, err)
			}
		}
		if read(t, path) != before {
			t.Error("the file was changed")
		}
	}
}

func TestOpen_SetsSynchronous(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{}, {Normal: true}} {
		store := openAt(t, newFile(t), o)
		want := map[string]int64{"synchronous": 2, "fullfsync": 1, "checkpoint_fullfsync": 1}
		if o.Normal {
			want["synchronous"] = 1
		}
		for pragma, value := range want {
			var got int64
			err := store.await(ctx, &request{ctx: ctx, read: func(f *file) error {
				return f.query("PRAGMA "+pragma, func(r *row) { got = r.integer() })
			}})
			if err != nil || got != value {
				t.Errorf("%+v: %s is %d, %v, want %d", o, pragma, got, err, value)
			}
		}
	}
}

func TestStore_ListenUsesNamesWithoutPrefix(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	a, b := openAt(t, path, Options{Prefix: "a:"}), openAt(t, path, Options{Prefix: "b:"})
	holder := sessiontest.Begin(t, a, "s", protocol.Config{Capacity: 1})
	lease := holder.Granted(1, sessiontest.Acquire(1, 1))[0]
	waiter := sessiontest.Begin(t, a, "s", protocol.Config{Capacity: 1})
	waiter.Send(sessiontest.Acquire(1, 1))
	listening, stop := context.WithCancel(ctx)
	received, done := make(chan string), make(chan error, 2)
	listen := func(s *Store, instance string) {
		go func() { done <- s.Listen(listening, instance, func(name string) { received <- name }) }()
	}
	listen(b, sessiontest.Instance(t)) // the same instance, with another prefix
	listen(a, sessiontest.Instance(t))
	for listening := 0; listening < 2; {
		ls := &a.shared.listeners
		ls.mu.Lock()
		listening = len(ls.byInstance[sessiontest.Instance(t)])
		ls.mu.Unlock()
	}
	holder.Send(sessiontest.Release(lease))
	if name := <-received; name != "s" {
		t.Errorf("notified of %q, want s", name)
	}
	stop()
	for range 2 {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Listen: %v, want Canceled", err)
		}
	}
	if len(a.shared.listeners.byInstance) > 0 {
		t.Error("listeners are left")
	}
}
