//go:build unix

package serve

import (
	"fmt"
	"os"
	"syscall"
)

// checkOwner fails if another user could read or replace what is in a directory.
func checkOwner(directory string) error {
	about, err := os.Stat(directory)
	if err != nil {
		return err
	}
	owner, ok := about.Sys().(*syscall.Stat_t)
	if ok && int(owner.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d, who could read and change all permits; name another file with --store sqlite:///path/sema.db", directory, owner.Uid)
	}
	if about.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s can be written by others (%v), who could change all permits; chmod 700 it, or name another file with --store sqlite:///path/sema.db", directory, about.Mode().Perm())
	}
	return nil
}
