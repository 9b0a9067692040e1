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

// bases lists the possible parents of the directories of users and groups, best first:
// the system's directory for locks, which a restart empties, and the temporary
// directory that every user can write. The first one that is open to all users is
// used. Neither the environment nor the permissions of this process matter: otherwise
// a shell, cron and a service in a sandbox would use different files. A process that
// may not write there gets an error.
var bases = []string{"/run/lock", "/var/tmp"}

const openToAll = fs.ModeDir | fs.ModeSticky | 0o002

const suffix = ".sema"

// maxName is the maximum length of a semaphore's name, in bytes.
const maxName = 80

// fileName returns the file name for a semaphore's name. Names consist of characters
// that can be typed in a shell and read in a listing; slashes group names.
func fileName(name string) (string, error) {
	if name == "" || len(name) > maxName {
		return "", invalid(fmt.Sprintf("name has %d characters", len(name)), fmt.Sprintf("use 1 to %d characters", maxName))
	}
	for _, r := range name {
		if !strings.ContainsRune(nameRunes, r) {
			return "", invalid(fmt.Sprintf("name has %q", r), "use letters, digits and . _ - : @ + /")
		}
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part[0] == '.' {
			return "", invalid("name has a part that is empty or begins with a dot", "begin each part between slashes with another character")
		}
	}
	return strings.ReplaceAll(name, "/", "%") + suffix, nil
}

const nameRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:@+/"

// nameOf returns the semaphore's name for a file name. It is the inverse of fileName;
// ok is false if no semaphore has that file name.
func nameOf(file string) (name string, ok bool) {
	bare, ok := strings.CutSuffix(file, suffix)
	if !ok {
		return "", false
	}
	name = strings.ReplaceAll(bare, "%", "/")
	back, err := fileName(name)
	return name, err == nil && back == file
}

// An access selects the users of a semaphore: one user, or the members of a group.
type access struct{ gid int } // onlyUser, or the group

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

// grant sets the group and mode of a new file, whatever the umask is.
func (a access) grant(created *os.File) error {
	if err := a.setGroup(created.Name()); err != nil {
		return err
	}
	return created.Chmod(a.fileMode())
}

func (a access) setGroup(path string) error {
	if !a.shared() {
		return nil
	}
	if err := os.Lchown(path, -1, a.gid); err != nil {
		return &sema.Error{Err: err, Detail: fmt.Sprintf("cannot share with group %d", a.gid), Advice: "check that this user is a member of the group"}
	}
	return nil
}

// check fails if a user without access may have created or changed the file or
// directory. Only a member of a group can change a file's group to it.
func (a access) check(path string, info fs.FileInfo) error {
	uid, gid := ownerOf(info)
	switch {
	case a.shared() && int(gid) != a.gid:
		return invalid(fmt.Sprintf("%s belongs to group %d, not %d", path, gid, a.gid), "remove it, or share with that group")
	case !a.shared() && int(uid) != os.Geteuid():
		return invalid(fmt.Sprintf("%s belongs to user %d, not %d", path, uid, os.Geteuid()), "remove it, or use ShareWithGroup")
	case info.Mode()&0o002 != 0:
		return invalid(fmt.Sprintf("%s can be written by all users (%v)", path, info.Mode()), "remove it")
	case !a.shared() && info.Mode()&0o020 != 0:
		return invalid(fmt.Sprintf("%s can be written by its group (%v)", path, info.Mode()), "chmod g-w it, or use ShareWithGroup")
	}
	return nil
}

// Where returns the directory of the semaphores, and creates it if it does not exist.
// Options select the directory, as for [Open].
func Where(opts ...Option) (string, error) {
	s, err := newSettings(opts)
	if err != nil {
		return s.dir, named("locate", "", err)
	}
	return s.dir, nil
}

// directory returns the default directory for an access, and creates it if it does not
// exist.
func directory(a access) (string, error) {
	for _, base := range bases {
		if info, err := os.Stat(base); err == nil && info.Mode()&openToAll == openToAll {
			dir := filepath.Join(base, a.dirName())
			return dir, a.makeDirectory(dir)
		}
	}
	return "", &sema.Error{Err: fs.ErrNotExist, Detail: fmt.Sprintf("none of %s is a directory open to all users", strings.Join(bases, ", ")), Advice: "name a directory with Dir"}
}

func (a access) makeDirectory(dir string) error {
	_, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err := a.createDirectory(dir); err != nil {
			if _, missing := os.Lstat(dir); missing != nil {
				return &sema.Error{Err: err, Detail: "cannot create " + dir, Advice: "name a directory with Dir"}
			}
		}
	}
	return a.checkOwn(dir)
}

// createDirectory creates dir. It sets mode and group before it renames the directory
// to dir.
func (a access) createDirectory(dir string) error {
	created, err := os.MkdirTemp(filepath.Dir(dir), ".sema-new-*")
	if err != nil {
		return err
	}
	defer os.Remove(created) // fails after the rename
	if err := a.setGroup(created); err != nil {
		return err
	}
	if err := os.Chmod(created, a.dirMode()); err != nil {
		return err
	}
	return os.Rename(created, dir)
}

// checkOwn fails if a user without access may have created an existing directory.
func (a access) checkOwn(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return invalid(dir+" is not a directory", "remove it")
	}
	return a.check(dir, info)
}

// checkNamed fails if a directory that the caller chose cannot be shared with a group:
// if all users can write to it, any user may have created a file there.
func (a access) checkNamed(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return &sema.Error{Err: err, Advice: "check the path, and that this user can read it: Dir does not create directories"}
	}
	if a.shared() && info.Mode()&0o002 != 0 {
		return invalid(dir+" can be written by all users", "use a directory of the group")
	}
	return nil
}

// groupID returns the ID of a group given by name or number.
func groupID(group string) (int, error) {
	if gid, err := strconv.Atoi(group); err == nil && gid >= 0 {
		return gid, nil
	}
	found, err := user.LookupGroup(group)
	if err != nil {
		return 0, invalid(err.Error(), "name an existing group")
	}
	return strconv.Atoi(found.Gid)
}
