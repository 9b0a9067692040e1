package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sema-go/sema"
)

// bases are where directories of users and groups may be, best first: the
// system's place for locks, gone after a restart like the processes; and the
// temporary directory that everybody has. The first is taken that is open to
// everybody. Neither the environment is asked nor whether this process may
// write there, or a shell, cron and a service in a sandbox would not meet: one
// of them that may not gets an error.
var bases = []string{"/run/lock", "/var/tmp"}

const openToAll = fs.ModeDir | fs.ModeSticky | 0o002

const suffix = ".sema"

// maxName is what fits into a file's name with every slash escaped.
const maxName = 80

// fileName is the file's name for a semaphore's. Names are what can be typed
// in a shell and read in a listing; slashes group them.
func fileName(name string) (string, error) {
	invalid := func(format string, args ...any) (string, error) {
		return "", openError(name, sema.ErrInvalid, "name: "+fmt.Sprintf(format, args...))
	}
	if name == "" || len(name) > maxName {
		return invalid("want 1 to %d characters, not %d", maxName, len(name))
	}
	for _, r := range name {
		if !strings.ContainsRune(nameRunes, r) {
			return invalid("%q is not allowed; use letters, digits and . _ - : @ + /", r)
		}
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part[0] == '.' {
			return invalid("want no part that is empty or begins with a dot")
		}
	}
	return strings.ReplaceAll(name, "/", "%") + suffix, nil
}

const nameRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:@+/"

// nameOf is the semaphore's name for a file's, if it is one that fileName gives.
func nameOf(file string) (name string, ok bool) {
	bare, ok := strings.CutSuffix(file, suffix)
	if !ok {
		return "", false
	}
	name = strings.ReplaceAll(bare, "%", "/")
	back, err := fileName(name)
	return name, err == nil && back == file
}

// An access says who may use a semaphore: the user, or the members of a group.
type access struct{ gid int }

const onlyUser = -1

func (a access) shared() bool { return a.gid != onlyUser }

func (a access) fileMode() fs.FileMode {
	if a.shared() {
		return 0o660
	}
	return 0o600
}

func (a access) dirMode() fs.FileMode {
	if a.shared() {
		return 0o770
	}
	return 0o700
}

func (a access) dirName() string {
	if a.shared() {
		return fmt.Sprintf("sema-group-%d", a.gid)
	}
	return fmt.Sprintf("sema-%d", os.Geteuid())
}

// grant gives a new file to the user or the group, whatever the umask is.
func (a access) grant(created *os.File) error {
	if err := a.giveToGroup(created.Name()); err != nil {
		return err
	}
	return created.Chmod(a.fileMode())
}

func (a access) giveToGroup(path string) error {
	if !a.shared() {
		return nil
	}
	if err := os.Lchown(path, -1, a.gid); err != nil {
		return fmt.Errorf("cannot share with group %d, is this user a member? %w", a.gid, err)
	}
	return nil
}

// check fails if the file or directory may be somebody else's doing. Only a
// member can give a file to a group.
func (a access) check(info fs.FileInfo) error {
	uid, gid := ownerOf(info)
	switch {
	case a.shared() && int(gid) != a.gid:
		return fmt.Errorf("belongs to group %d, not %d; remove it, or share with that group", gid, a.gid)
	case !a.shared() && int(uid) != os.Geteuid():
		return fmt.Errorf("belongs to user %d, not %d; remove it, or use ShareWithGroup", uid, os.Geteuid())
	case info.Mode()&0o002 != 0:
		return fmt.Errorf("can be written by everybody (%v); remove it", info.Mode())
	case !a.shared() && info.Mode()&0o020 != 0:
		return fmt.Errorf("can be written by its group (%v); chmod g-w it, or use ShareWithGroup", info.Mode())
	}
	return nil
}

// Where is the directory that semaphores are in, made if need be. Options say
// which, as for [Open].
func Where(opts ...Option) (string, error) {
	s, err := newSettings(opts)
	return s.dir, err
}

// directory is the one for an access, made if need be.
func directory(a access) (string, error) {
	for _, base := range bases {
		if info, err := os.Stat(base); err == nil && info.Mode()&openToAll == openToAll {
			dir := filepath.Join(base, a.dirName())
			return dir, a.makeDirectory(dir)
		}
	}
	return "", fmt.Errorf("%w: neither of %s is a directory for everybody; name one with Dir", fs.ErrNotExist, strings.Join(bases, ", "))
}

func (a access) makeDirectory(dir string) error {
	_, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err := a.createDirectory(dir); err != nil {
			if _, missing := os.Lstat(dir); missing != nil {
				return fmt.Errorf("cannot make a directory for locks; name one with Dir: %w", err)
			}
		}
	}
	return a.checkOwn(dir)
}

// createDirectory has it in place only once it has its mode and group.
func (a access) createDirectory(dir string) error {
	made, err := os.MkdirTemp(filepath.Dir(dir), ".sema-new-*")
	if err != nil {
		return err
	}
	defer os.Remove(made) // it is gone when renamed
	if err := a.giveToGroup(made); err != nil {
		return err
	}
	if err := os.Chmod(made, a.dirMode()); err != nil {
		return err
	}
	return os.Rename(made, dir)
}

// checkOwn fails if a directory that was found may be somebody else's doing.
func (a access) checkOwn(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%w: %s is not a directory; remove it", sema.ErrInvalid, dir)
	}
	if err := a.check(info); err != nil {
		return fmt.Errorf("%w: %s %w", sema.ErrInvalid, dir, err)
	}
	return nil
}

// checkNamed fails if a directory of the caller's choice cannot be shared: in
// one that everybody can write to and whose files are the group's, a file may
// be anybody's.
func (a access) checkNamed(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if a.shared() && info.Mode()&0o002 != 0 {
		return fmt.Errorf("%w: %s can be written by everybody; share in a directory of the group's", sema.ErrInvalid, dir)
	}
	return nil
}

// groupID is the id of a group by its name or number.
func groupID(group string) (int, error) {
	if gid, err := strconv.Atoi(group); err == nil && gid >= 0 {
		return gid, nil
	}
	found, err := user.LookupGroup(group)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(found.Gid)
}
