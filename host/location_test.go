//go:build linux

package host

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sema-go/sema"
)

// setBases replaces bases during the test and opens the directories to all users.
func setBases(t *testing.T, dirs ...string) {
	t.Helper()
	before := bases
	bases = dirs
	for _, dir := range dirs {
		os.Chmod(dir, 0o777|os.ModeSticky)
	}
	t.Cleanup(func() { bases = before })
}

func TestDirectory_UsesTheFirstBaseOpenToAllUsers(t *testing.T) {
	missing, private, there := filepath.Join(t.TempDir(), "none"), t.TempDir(), t.TempDir()
	setBases(t, missing, private, there)
	if err := os.Chmod(private, 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		dir, err := directory(access{onlyUser})
		if err != nil || filepath.Dir(dir) != there {
			t.Fatalf("%s %v, want a directory in %s", dir, err, there)
		}
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Fatalf("%v %v", info.Mode(), err)
		}
	}
	left, err := os.ReadDir(there)
	if err != nil || len(left) != 1 {
		t.Errorf("%v %v, want exactly one directory", left, err)
	}
	setBases(t, missing)
	if _, err := directory(access{onlyUser}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestWhere_ReturnsDirectory(t *testing.T) {
	base, own := t.TempDir(), t.TempDir()
	setBases(t, base)
	if dir, err := Where(); err != nil || filepath.Dir(dir) != base {
		t.Errorf("%s %v, want a directory in %s", dir, err, base)
	}
	if dir, err := Where(Dir(own)); err != nil || dir != own {
		t.Errorf("%s %v, want %s", dir, err, own)
	}
	if _, err := Where(Dir(filepath.Join(own, "none"))); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestDirectory_RejectsDirectoriesOfOthers(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	setBases(t, first, second)
	mine := filepath.Join(first, access{onlyUser}.dirName())
	rejected := func(about string) {
		t.Helper()
		if dir, err := directory(access{onlyUser}); !errors.Is(err, sema.ErrInvalid) {
			t.Errorf("%s: %q %v", about, dir, err)
		}
		if err := os.RemoveAll(mine); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(second, mine); err != nil {
		t.Fatal(err)
	}
	rejected("a symbolic link")
	if err := errors.Join(os.Mkdir(mine, 0o700), os.Chmod(mine, 0o777)); err != nil {
		t.Fatal(err)
	}
	rejected("a directory that all users can write")
	if os.Geteuid() == 0 {
		if err := errors.Join(os.Mkdir(mine, 0o700), os.Chown(mine, 65534, 65534)); err != nil {
			t.Fatal(err)
		}
		rejected("a directory of another user")
	}
}

// TestDirectory_ReadOnlyBaseIsAnError checks that a process that may not write to the
// first base does not use the second one.
func TestDirectory_ReadOnlyBaseIsAnError(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	mountTmpfs(t, first, syscall.MS_RDONLY, "mode=1777")
	setBases(t, first, second)
	if _, err := Open("x", 1); !errors.Is(err, syscall.EROFS) {
		t.Error(err)
	}
}

func TestShareWithGroup_RejectsWorldWritableDirectories(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if _, err := Open("x", 1, Dir(dir), ShareWithGroup("0")); !errors.Is(err, sema.ErrInvalid) {
		t.Error(err)
	}
}

func TestDirectory_ForAGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be in any group")
	}
	base := t.TempDir()
	setBases(t, base)
	sem, err := Open("shared", 1, ShareWithGroup("54321"))
	if err != nil {
		t.Fatal(err)
	}
	defer sem.Close()
	dir := filepath.Join(base, "sema-group-54321")
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, gid := ownerOf(info); gid != 54321 || info.Mode().Perm() != 0o770 {
		t.Errorf("group %d, mode %v", gid, info.Mode())
	}
}

// mountTmpfs mounts a tmpfs. Root may do so, but not in every container.
func mountTmpfs(t *testing.T, dir string, flags uintptr, options string) {
	t.Helper()
	err := syscall.Mount("tmpfs", dir, "tmpfs", flags, options)
	if errors.Is(err, syscall.EPERM) {
		t.Skip("needs the permission to mount:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
}
