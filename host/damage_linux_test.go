//go:build linux && !sema_portable

package host_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host"
)

// The tests in this file open the semaphore's file a second time. With POSIX record
// locks that would drop the locks of the process, so they need Linux.

// damages lists what another program of the user may do to a file in use. After a
// truncation the kernel sends SIGBUS to a process that touches the missing part.
var damages = map[string]struct {
	cut bool
	do  func(path string) error
}{
	"truncated to nothing":    {true, func(path string) error { return os.Truncate(path, 0) }},
	"truncated in the header": {true, func(path string) error { return os.Truncate(path, 20) }},
	"truncated after a page":  {true, func(path string) error { return os.Truncate(path, 4096) }},
	"truncated and extended":  {false, func(path string) error { return errors.Join(os.Truncate(path, 0), os.Truncate(path, 1<<20)) }},
	"overwritten":             {false, func(path string) error { return writeInto(path, bytes.Repeat([]byte("garbage "), 1<<17)) }},
	"overwritten by one byte": {true, func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) }},
}

func writeInto(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

func eachDamage(t *testing.T, test func(t *testing.T, damage func(path string) error)) {
	for name, d := range damages {
		t.Run(name, func(t *testing.T) {
			if d.cut && raceFactor > 1 {
				t.Skip("the race detector touches memory outside Go code, where a fault ends the process")
			}
			test(t, d.do)
		})
	}
}

func TestSemaphore_ReleasesPermitsOfADamagedFile(t *testing.T) {
	eachDamage(t, func(t *testing.T, damage func(string) error) {
		sem, dir, name := open(t, 4)
		path := filepath.Join(dir, name+".sema")
		p, q, inherited := mustAcquire(t, sem, 1), mustAcquire(t, sem, 2), mustAcquire(t, sem, 1)
		cmd := exec.Command("true")
		if err := host.Inherit(inherited, cmd); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		if err := damage(path); err != nil {
			t.Fatal(err)
		}
		if err := p.Err(); err != nil {
			t.Errorf("the kernel still holds the lock, but Err returns %v", err)
		}
		first, rest, err := q.Split(1)
		if err != nil {
			t.Fatal(err)
		}
		for _, permit := range []sema.Permit{p, first, rest, inherited} {
			permit.Release()
		}
		if err := sem.Close(); err != nil {
			t.Error(err)
		}
		// The locks are dropped: another opener is the only one.
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		mustAcquire(t, openIn(t, dir, name, 4), 4)
	})
}

func TestSemaphore_ReportsADamagedFile(t *testing.T) {
	eachDamage(t, func(t *testing.T, damage func(string) error) {
		sem, dir, name := open(t, 1)
		held := mustAcquire(t, sem, 1)
		ended := make(chan error, 1)
		go func() {
			_, err := sem.Acquire(context.Background(), 1)
			ended <- err
		}()
		awaitStats(t, sem, 1, 1)
		if err := damage(filepath.Join(dir, name+".sema")); err != nil {
			t.Fatal(err)
		}
		wantErr(t, <-ended, host.ErrDamaged)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		_, err := sem.TryAcquire(ctx, 1)
		wantErr(t, err, host.ErrDamaged)
		_, err = sem.Acquire(ctx, 1)
		wantErr(t, err, host.ErrDamaged)
		_, err = sem.Inspect(ctx)
		wantErr(t, err, host.ErrDamaged)
		wantErr(t, sem.Drain(ctx), host.ErrDamaged)
		wantErr(t, sem.Resume(ctx), host.ErrDamaged)
		wantErr(t, sem.SetMaxWaiters(ctx, 1), host.ErrDamaged)
		if st := sem.Stats(); st.Capacity != 0 {
			t.Errorf("%+v", st)
		}
		wantErr(t, sem.Resize(context.Background(), 2), host.ErrDamaged)
		_, err = host.Open(name, 1, host.Dir(dir))
		wantErr(t, err, host.ErrDamaged)
		other := startUserUnchecked(t, dir, name, 1)
		if reply := other.Receive(); !strings.Contains(reply, host.ErrDamaged.Error()) {
			t.Errorf("another process: %s", reply)
		}
		held.Release()
		_, err = sem.TryAcquire(ctx, 1)
		wantErr(t, err, host.ErrDamaged)
		if err := sem.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestOpen_ResetsATruncatedFile checks that the next process that is the only opener
// resets a truncated file.
func TestOpen_ResetsATruncatedFile(t *testing.T) {
	for name, size := range map[string]int64{"to nothing": 0, "in the header": 20, "after a page": 4096} {
		t.Run(name, func(t *testing.T) {
			sem, dir, name := open(t, 1)
			sem.Close()
			if err := os.Truncate(filepath.Join(dir, name+".sema"), size); err != nil {
				t.Fatal(err)
			}
			again := openIn(t, dir, name, 3)
			mustAcquire(t, again, 3)
			awaitStats(t, again, 3, 0)
		})
	}
}

func TestOpen_LeavesForeignFilesAlone(t *testing.T) {
	disk := make([]byte, 64<<10) // like a disk image: it begins with zeros
	copy(disk[32<<10:], "CD001")
	for name, content := range map[string][]byte{
		"text":        []byte("the only copy of my thesis"),
		"one byte":    []byte("x"),
		"large":       []byte(strings.Repeat("garbage ", 10000)),
		"image":       disk,
		"long zeros":  make([]byte, 8<<20),
		"late zeros":  append(make([]byte, 8), "and then this"...),
		"almost ours": []byte("sehosx1\x00 and more, as long as a header is, at least"),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "a.sema")
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := host.Open("a", 2, host.Dir(dir))
			wantErr(t, err, sema.ErrInvalid)
			if !strings.Contains(err.Error(), "was not created by Sema") {
				t.Error(err)
			}
			_, err = host.Open("a", host.Existing, host.Dir(dir))
			wantErr(t, err, sema.ErrInvalid)
			if err := host.Remove("a", host.Dir(dir)); err == nil {
				t.Error("Remove removed a foreign file")
			}
			if found, err := host.List(host.Dir(dir)); err != nil || len(found) > 0 {
				t.Errorf("%v %v", found, err)
			}
			if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, content) {
				t.Errorf("the content was changed: %d bytes, %v", len(now), err)
			}
		})
	}
}

// TestOpen_CompletesAnUnfinishedFile opens files as a process leaves them that is
// killed while it creates the file.
func TestOpen_CompletesAnUnfinishedFile(t *testing.T) {
	for name, content := range map[string][]byte{
		"empty":        nil,
		"one zero":     {0},
		"zeros":        make([]byte, 12<<10),
		"begun":        append([]byte("sehost0\x00"), make([]byte, 12<<10)...),
		"older layout": append([]byte("sehost\x00\x00"), make([]byte, 100)...),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "a.sema")
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := host.Open("a", host.Existing, host.Dir(dir))
			wantErr(t, err, fs.ErrNotExist)
			if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, content) {
				t.Errorf("Open with Existing changed the file: %d bytes, %v", len(now), err)
			}
			sem := openIn(t, dir, "a", 2)
			mustAcquire(t, sem, 2)
			awaitStats(t, sem, 2, 0)
		})
	}
}
