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

// bases are where directories of users and groups may be, best first: the system's
// directory for locks, which a restart empties, and the temporary directory that
// every user can write. The first one that is open to all users is used. Neither the
// environment nor the rights of this process matter, or a shell, cron and a service
// in a sandbox would use different files: one that may not write there gets an error.
var bases = []string{"/run/lock", "/var/tmp"}

const openToAll = fs.ModeDir | fs.ModeSticky | 0o002

const suffix = ".sema"

// maxName is the most bytes of a semaphore's name.
const maxName = 80

// fileName returns the name of a semaphore's file. Names consist of what can be typed
// in a shell and read in a listing; slashes group them.
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

// nameOf returns the semaphore's name for that of a file, if fileName returns that file
// for it.
func nameOf(file string) (name string, ok bool) {
	bare, ok := strings.CutSuffix(file, suffix)
	if !ok {
		return "", false
	}
	name = strings.ReplaceAll(bare, "%", "/")
	back, err := fileName(name)
	return name, err == nil && back == file
}

// An access is who may use a semaphore: the user, or the members of a group.
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
		return &sema.Error{Err: err, Detail: fmt.Sprintf("cannot share with group %d", a.gid), Advice: "check that this user is a member of the group"}
	}
	return nil
}

// check fails if another user may have created or changed the file or directory. Only
// a member can give a file to a group.
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

// Where returns the directory that semaphores are in, and creates it if it does not
// exist. Options select it, as for [Open].
func Where(opts ...Option) (string, error) {
	s, err := newSettings(opts)
	if err != nil {
		return s.dir, named("locate", "", err)
	}
	return s.dir, nil
}

// directory returns the one for an access, and creates it if it does not exist.
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

// createDirectory gives the directory its name only after its mode and group.
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

// checkOwn fails if another user may have created a directory that was found.
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

// checkNamed fails if a directory that the caller chose cannot be shared: where all
// users can write and files belong to a group, any user may have created a file.
func (a access) checkNamed(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if a.shared() && info.Mode()&0o002 != 0 {
		return invalid(dir+" can be written by all users", "use a directory of the group")
	}
	return nil
}

// groupID returns the id of a group by its name or number.
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
