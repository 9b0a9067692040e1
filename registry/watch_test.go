package registry_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/registry"
)

// A watched registry is one that a goroutine of a bubble watches.
type watched struct {
	*registry.Registry
	t    *testing.T
	path string
	db   *sema.Semaphore
	log  *journal
	stop func() error
}

// watch runs fn with a registry that watches a file, in a bubble.
func watch(t *testing.T, fn func(w *watched)) {
	t.Parallel()
	path := file(t, `{"limits": {"db": {"capacity": 20}}}`)
	synctest.Test(t, func(t *testing.T) {
		w := &watched{t: t, path: path, log: new(journal)}
		w.Registry = registry.New(registry.Log(w.log.logger()), registry.PollEvery(time.Second))
		w.db = w.Semaphore("db", 40, "why")
		ctx, cancel := context.WithCancelCause(t.Context())
		result := make(chan error, 1)
		go func() { result <- w.Watch(ctx, path) }()
		errStop := errors.New("stop")
		w.stop = func() error {
			cancel(errStop)
			return <-result
		}
		w.poll()
		wantCapacity(t, w.db, 20)
		fn(w)
		if err := w.stop(); !errors.Is(err, errStop) {
			t.Errorf("Watch returned %v, want the cause", err)
		}
	})
}

// poll waits for the next poll.
func (w *watched) poll() {
	time.Sleep(time.Second)
	synctest.Wait()
}

// replace renames a new file over the watched one.
func (w *watched) replace(text string) {
	w.t.Helper()
	write(w.t, w.path+".new", text)
	if err := os.Rename(w.path+".new", w.path); err != nil {
		w.t.Fatal(err)
	}
}

func (w *watched) wantLogged(part string, times int) {
	w.t.Helper()
	if got := w.log.count(part); got != times {
		w.t.Errorf("%q was logged %d times, want %d:\n%s", part, got, times, w.log.buf.String())
	}
}

func TestWatch_AppliesChanges(t *testing.T) {
	watch(t, func(w *watched) {
		w.wantLogged("file applied", 1)
		w.wantLogged("db: 40 → 20", 1)
		w.replace(`{"limits": {"db": {"capacity": 10}}}`)
		w.poll()
		wantCapacity(w.t, w.db, 10)
		write(w.t, w.path, `{"limits": {"db": {"capacity": 11}}}`) // of the same length
		w.poll()
		wantCapacity(w.t, w.db, 11)
		w.db.Resize(5) // by the program: the same file does not undo it
		w.poll()
		wantCapacity(w.t, w.db, 5)
		w.wantLogged("file applied", 3)
	})
}

func TestWatch_FollowsSymbolicLinksOfAConfigMap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for version, text := range map[string]string{"v1": `{"limits": {"db": {"capacity": 1}}}`, "v2": `{"limits": {"db": {"capacity": 2}}}`} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, version, "limits.json"), text)
	}
	link := func(to, name string) {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("v1", "..data")
	link("..data/limits.json", "limits.json")
	synctest.Test(t, func(t *testing.T) {
		r := registry.New(registry.Log(new(journal).logger()))
		db := r.Semaphore("db", 40, "why")
		go r.Watch(t.Context(), filepath.Join(dir, "limits.json"))
		synctest.Wait()
		wantCapacity(t, db, 1)
		link("v2", "..tmp")
		if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second) // the default
		synctest.Wait()
		wantCapacity(t, db, 2)
	})
}

func TestWatch_ReportsABadFileOnceAndKeepsTheState(t *testing.T) {
	watch(t, func(w *watched) {
		w.replace(`{"limits": {"dbb": {"capacity": 10}}}`)
		w.poll()
		w.wantLogged("file rejected", 0) // it may be half written
		w.poll()
		w.wantLogged("file rejected", 1)
		w.wantLogged("did you mean", 1)
		w.poll()
		w.poll()
		w.wantLogged("file rejected", 1)
		wantCapacity(w.t, w.db, 20)
		w.replace(`{"limits": {"db": {"capacity": -1}}}`)
		w.poll()
		w.poll()
		w.wantLogged("file rejected", 2)
		w.replace(`{"limits": {"db": {"capacity": 20}}}`) // what is in force
		w.poll()
		w.wantLogged("again what was loaded", 1)
		w.replace(`{"limits": {"db": {"capacity": 21}}}`)
		w.poll()
		wantCapacity(w.t, w.db, 21)
	})
}

func TestWatch_IgnoresAHalfWrittenFile(t *testing.T) {
	watch(t, func(w *watched) {
		write(w.t, w.path, `{"limits": {"db": {"cap`)
		w.poll()
		write(w.t, w.path, ``)
		w.poll()
		write(w.t, w.path, `{"limits": {"db": {"capacity": 10}}}`)
		w.poll()
		wantCapacity(w.t, w.db, 10)
		w.wantLogged("file rejected", 0)
	})
}

func TestWatch_MissingFileKeepsTheState(t *testing.T) {
	watch(t, func(w *watched) {
		os.Remove(w.path)
		w.poll()
		w.wantLogged("file rejected", 0)
		w.poll()
		w.poll()
		w.wantLogged("file rejected", 1)
		wantCapacity(w.t, w.db, 20)
		w.replace(`{"limits": {"db": {"capacity": 20}}}`)
		w.poll()
		w.wantLogged("again what was loaded", 1)
	})
}

func TestWatch_AppliesARejectedFileOnceItFits(t *testing.T) {
	watch(t, func(w *watched) {
		w.replace(`{"limits": {"late": {"capacity": 10}}}`)
		w.poll()
		w.poll()
		w.wantLogged("file rejected", 1)
		late := w.Semaphore("late", 1, "why")
		w.poll()
		wantCapacity(w.t, late, 10)
		wantCapacity(w.t, w.db, 40)
	})
}

func TestWatch_RetriesWhatFailed(t *testing.T) {
	watch(t, func(w *watched) {
		wide := &stored{capacity: 1, fail: errStore}
		w.Add("wide", wide, "why")
		w.replace(`{"limits": {"wide": {"capacity": 10}, "db": {"capacity": 10}}}`)
		w.poll()
		w.poll()
		w.poll()
		w.wantLogged("file rejected", 1)
		wantCapacity(w.t, w.db, 20)
		wide.mu.Lock()
		wide.fail = nil
		wide.mu.Unlock()
		w.poll()
		wantCapacity(w.t, w.db, 10)
		if got := wide.Stats().Capacity; got != 10 {
			w.t.Errorf("shared capacity %d", got)
		}
	})
}

func TestWatch_RejectsNilContextAndEndsWithAnEndedOne(t *testing.T) {
	t.Parallel()
	r := registry.New()
	db := r.Semaphore("db", 40, "why")
	path := file(t, `{"limits": {"db": {"capacity": 20}}}`)
	if err := r.Watch(noContext, path); !errors.Is(err, sema.ErrInvalid) {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Watch(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	wantCapacity(t, db, 40)
}

func TestWatch_RetriesTheSettingOfALateLimit(t *testing.T) {
	watch(t, func(w *watched) {
		w.Expect("wide")
		w.replace(`{"limits": {"wide": {"capacity": 10}}}`)
		w.poll()
		wide := &stored{capacity: 1, fail: errStore}
		w.Add("wide", wide, "why")
		w.poll()
		w.poll()
		w.wantLogged("not in force", 1)
		wide.mu.Lock()
		wide.fail = nil
		wide.mu.Unlock()
		w.poll()
		if l, _ := w.Get("wide"); l.Problem != nil || l.Value.Capacity != 10 {
			w.t.Errorf("%+v", l)
		}
	})
}
