//go:build linux

package host_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host"
	"github.com/sema-go/sema/internal/proctest"
)

func TestHolders_ListsProcesses(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 10)
	before := time.Now()
	p := mustAcquire(t, sem, 2)
	other := startUser(t, dir, name, 10)
	other.Send("acquire 3")
	other.Expect("acquired 3")
	other.Send("acquire 1")
	other.Expect("acquired 1")
	holders, err := inspectHolders(sem)
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		pid    int
		weight int64
	}{{os.Getpid(), 2}, {other.Pid, 3}, {other.Pid, 1}}
	if len(holders) != len(want) {
		t.Fatalf("%+v", holders)
	}
	for i, h := range holders {
		if h.PID != want[i].pid || h.Weight != want[i].weight {
			t.Errorf("holder %d: %+v, want %+v", i, h, want[i])
		}
		if h.Since.Before(before) || h.Since.After(time.Now()) {
			t.Errorf("since %v", h.Since)
		}
		if !strings.Contains(h.Command, "host.test") {
			t.Errorf("command %q", h.Command)
		}
	}
	p.Release()
	other.End()
	if holders, err := inspectHolders(sem); err != nil || len(holders) != 0 {
		t.Errorf("%+v %v, want no holders", holders, err)
	}
}

// TestList_OmitsInvalidNames checks that files with names that Open rejects are left out.
func TestList_OmitsInvalidNames(t *testing.T) {
	t.Parallel()
	_, dir, name := open(t, 2)
	content, err := os.ReadFile(filepath.Join(dir, name+".sema"))
	if err != nil {
		t.Fatal(err)
	}
	for _, odd := range []string{"\x1b[2Jx.sema", ".hidden.sema", "a%%b.sema", "\xff.sema", ".sema"} {
		if err := os.WriteFile(filepath.Join(dir, odd), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	infos, err := host.List(host.Dir(dir))
	if err != nil || len(infos) != 1 || infos[0].Name != name {
		t.Errorf("%+v %v, want %q", infos, err, name)
	}
}

func TestHolders_AfterACrash(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 4)
	other := startUser(t, dir, name, 4)
	for range 4 {
		other.Send("acquire 1")
		other.Expect("acquired 1")
	}
	other.End()
	mustAcquire(t, sem, 3)
	holders, err := inspectHolders(sem)
	if err != nil || len(holders) != 1 || holders[0].PID != os.Getpid() || holders[0].Weight != 3 {
		t.Errorf("%+v %v, want 3 held by this process", holders, err)
	}
}

func TestOpen_ChildrenDoNotInheritDescriptors(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 1)
	mustAcquire(t, sem, 1)
	out, err := exec.Command(proctest.Need(t, "ls", "coreutils"), "-l", "/proc/self/fd").Output()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(out), filepath.Join(dir, name)) {
		t.Errorf("a child has the semaphore's file open:\n%s", out)
	}
}

func TestAcquire_FailsIfFileIsDeleted(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 1)
	mustAcquire(t, sem, 1).Release()
	if err := os.Remove(filepath.Join(dir, name+".sema")); err != nil {
		t.Fatal(err)
	}
	second := openIn(t, dir, name, 1)
	mustAcquire(t, second, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		p, err := sem.Acquire(ctx, 1)
		p.Release()
		if errors.Is(err, host.ErrDeleted) {
			return
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%v, want ErrDeleted after a second", err)
		}
	}
}

func TestPermit_ErrReportsADeletedFile(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 1)
	p := mustAcquire(t, sem, 1)
	if err := p.Err(); err != nil {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(dir, name+".sema")); err != nil {
		t.Fatal(err)
	}
	wantErr(t, p.Err(), sema.ErrLost)
	wantErr(t, sem.Resize(context.Background(), 2), host.ErrDeleted)
}

func TestAcquire_WaiterFailsIfFileIsDeleted(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 1)
	mustAcquire(t, sem, 1)
	ended := make(chan error, 1)
	go func() {
		_, err := sem.Acquire(context.Background(), 1)
		ended <- err
	}()
	awaitStats(t, sem, 1, 1)
	if err := os.Remove(filepath.Join(dir, name+".sema")); err != nil {
		t.Fatal(err)
	}
	wantErr(t, <-ended, host.ErrDeleted)
}

func TestRemove_FailsWhileInUse(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 1)
	wantErr(t, host.Remove(name, host.Dir(dir)), sema.ErrInvalid)
	sem.Close()
	other := startUser(t, dir, name, 1)
	wantErr(t, host.Remove(name, host.Dir(dir)), sema.ErrInvalid)
	other.End()
	if err := host.Remove(name, host.Dir(dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, name+".sema")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// contenderRole opens, tries, closes and removes a semaphore, and checks that there is no second holder.
// Arguments: directory, name, cells.
func contenderRole(c *proctest.Child) {
	all, err := mapCells(c.Args[2])
	c.Must(err)
	dir := host.Dir(c.Args[0])
	for range 200 {
		sem, err := host.Open(c.Args[1], 1, dir)
		c.Must(err)
		p, err := sem.TryAcquire(context.Background(), 1)
		if !errors.Is(err, sema.ErrFull) {
			c.Must(err)
			if n := all[0].holds.Add(1); n != 1 {
				c.Must(fmt.Errorf("%d holders of one permit", n))
			}
			all[0].done.Add(1)
			all[0].holds.Add(^uint64(0))
			p.Release()
		}
		sem.Close()
		host.Remove(c.Args[1], dir) // fails while another process has it open
	}
	c.Send("done")
}

// TestOpen_RacingRemoveUsesOneFile checks that no two processes use different files
// while others open and remove the semaphore.
func TestOpen_RacingRemoveUsesOneFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "cells")
	all, err := mapCells(path)
	if err != nil {
		t.Fatal(err)
	}
	var contenders []*proctest.Process
	for range 4 {
		contenders = append(contenders, proctest.Start(t, "contender", dir, "contested", path))
	}
	for _, c := range contenders {
		c.Expect("done")
	}
	if all[0].done.Load() == 0 {
		t.Error("no process ever acquired the permit")
	}
}

func TestOpen_RejectsFilesOfOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a.sema")
	attempt := func(about string) {
		t.Helper()
		_, err := host.Open("a", 1, host.Dir(dir))
		if err == nil {
			t.Errorf("%s: accepted", about)
		}
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	target := filepath.Join(dir, "target")
	if err := errors.Join(os.WriteFile(target, nil, 0o600), os.Symlink(target, path)); err != nil {
		t.Fatal(err)
	}
	attempt("a symbolic link")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	attempt("a directory")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o666)); err != nil {
		t.Fatal(err)
	}
	attempt("a file that all users can write")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o660)); err != nil {
		t.Fatal(err)
	}
	attempt("a file that the group can write")
	if os.Geteuid() == 0 {
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, 65534, 65534)); err != nil {
			t.Fatal(err)
		}
		attempt("a file of another user")
	}
}

func TestOpen_ChecksAccessOfAnOpenFile(t *testing.T) {
	t.Parallel()
	_, dir, name := open(t, 1)
	_, err := host.Open(name, 1, host.Dir(dir), host.ShareWithGroup("54321"))
	wantErr(t, err, sema.ErrInvalid)
}

// TestShareWithGroup_AdmitsMembersOnly opens the semaphore of a group as a member and
// as another user.
func TestShareWithGroup_AdmitsMembersOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be two users")
	}
	dir, err := os.MkdirTemp("", "sema-host")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	const group = 54321
	if err := errors.Join(os.Chown(dir, 0, group), os.Chmod(dir, 0o770)); err != nil {
		t.Fatal(err)
	}
	name := "shared"
	sem := openIn(t, dir, name, 1, host.ShareWithGroup(strconv.Itoa(group)))
	info, err := os.Stat(filepath.Join(dir, name+".sema"))
	if err != nil || info.Mode().Perm() != 0o660 {
		t.Fatalf("%v %v", info, err)
	}
	mustAcquire(t, sem, 1)
	member := asUser(t, "member", group, dir, name)
	member.Expect("full")
	nonMember := asUser(t, "member", 65534, dir, name)
	if reply := nonMember.Receive(); !strings.Contains(reply, fs.ErrPermission.Error()) {
		t.Errorf("a user outside the group: %s", reply)
	}
}

// TestShareWithGroup_FailureLeavesNoFile checks that no file is left if its group cannot
// be set.
func TestShareWithGroup_FailureLeavesNoFile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	dir, err := os.MkdirTemp("", "sema-host")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	nonMember := asUser(t, "member", 65534, dir, "shared")
	if reply := nonMember.Receive(); !strings.Contains(reply, "cannot share with group 54321") {
		t.Errorf("a user outside the group: %s", reply)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%v %v, want an empty directory", entries, err)
	}
}

func TestOpen_DefaultDirectoryIgnoresEnvironment(t *testing.T) {
	// The default directory, with a name that no other test uses.
	name := fmt.Sprintf("test/%d", os.Getpid())
	sem, err := host.Open(name, 1)
	if err != nil {
		t.Fatal(err)
	}
	sem.Close()
	t.Cleanup(func() { host.Remove(name) })
	infos, err := host.List()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, info := range infos {
		found = found || info.Name == name
	}
	if !found {
		t.Errorf("%q is not in %v", name, infos)
	}
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	again, err := host.Open(name, host.Existing)
	if err != nil {
		t.Fatalf("with another environment: %v", err)
	}
	again.Close()
}
