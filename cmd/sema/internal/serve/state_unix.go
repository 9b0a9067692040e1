//go:build unix

package serve

import (
	"os"
	"syscall"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
)

// checkOwner fails if another user could read or replace files of a directory.
func checkOwner(directory string) error {
	about, err := os.Stat(directory)
	if err != nil {
		return err
	}
	owner, ok := about.Sys().(*syscall.Stat_t)
	if ok && int(owner.Uid) != os.Geteuid() {
		return exit.Misuse("%s belongs to user %d, who could read and change all permits", directory, owner.Uid).With("name another file with --store sqlite:///path/sema.db")
	}
	if about.Mode().Perm()&0o022 != 0 {
		return exit.Misuse("%s can be written by other users (%v), who could change all permits", directory, about.Mode().Perm()).
			With("chmod 700 it, or name another file with --store sqlite:///path/sema.db")
	}
	return nil
}
