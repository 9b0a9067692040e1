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

// inBases has directories looked for under some of the test's own.
func inBases(t *testing.T, dirs ...string) {
	t.Helper()
	before := bases
	bases = dirs
	for _, dir := range dirs {
		os.Chmod(dir, 0o777|os.ModeSticky)
	}
	t.Cleanup(func() { bases = before })
}

func TestDirectoryIsInTheFirstBaseForEverybody(t *testing.T) {
	missing, private, there := filepath.Join(t.TempDir(), "none"), t.TempDir(), t.TempDir()
	inBases(t, missing, private, there)
	if err := os.Chmod(private, 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		dir, err := directory(access{onlyUser})
		if err != nil || filepath.Dir(dir) != there {
			t.Fatalf("%s %v, want one in %s", dir, err, there)
		}
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Fatalf("%v %v", info.Mode(), err)
		}
	}
	left, err := os.ReadDir(there)
	if err != nil || len(left) != 1 {
		t.Errorf("%v %v, want the one directory", left, err)
	}
	inBases(t, missing)
	if _, err := directory(access{onlyUser}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestWhere(t *testing.T) {
	base, own := t.TempDir(), t.TempDir()
	inBases(t, base)
	if dir, err := Where(); err != nil || filepath.Dir(dir) != base {
		t.Errorf("%s %v, want one in %s", dir, err, base)
	}
	if dir, err := Where(Dir(own)); err != nil || dir != own {
		t.Errorf("%s %v, want %s", dir, err, own)
	}
	if _, err := Where(Dir(filepath.Join(own, "none"))); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestDirectoryOfAnotherIsRefusedAndNotPassedBy(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	inBases(t, first, second)
	mine := filepath.Join(first, access{onlyUser}.dirName())
	refused := func(about string) {
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
	refused("a symbolic link")
	if err := errors.Join(os.Mkdir(mine, 0o700), os.Chmod(mine, 0o777)); err != nil {
		t.Fatal(err)
	}
	refused("a directory for everybody")
	if os.Geteuid() == 0 {
		if err := errors.Join(os.Mkdir(mine, 0o700), os.Chown(mine, 65534, 65534)); err != nil {
			t.Fatal(err)
		}
		refused("a directory of another user's")
	}
}

// One who may not write where the others of its user meet must not go
// elsewhere.
func TestDirectoryIsNotAnotherOneForWhoMayNotWrite(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	mountTmpfs(t, first, syscall.MS_RDONLY, "mode=1777")
	inBases(t, first, second)
	if _, err := Open("x", 1); !errors.Is(err, syscall.EROFS) {
		t.Error(err)
	}
}

func TestAGroupDoesNotMeetWhereEverybodyMayWrite(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if _, err := Open("x", 1, Dir(dir), ShareWithGroup("0")); !errors.Is(err, sema.ErrInvalid) {
		t.Error(err)
	}
}

func TestDirectoryOfAGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be in any group")
	}
	base := t.TempDir()
	inBases(t, base)
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

// mountTmpfs needs a right that root has, though not in every container.
func mountTmpfs(t *testing.T, dir string, flags uintptr, options string) {
	t.Helper()
	err := syscall.Mount("tmpfs", dir, "tmpfs", flags, options)
	if errors.Is(err, syscall.EPERM) {
		t.Skip("needs the right to mount:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
}
