//go:build unix

package serve

import (
	"os"
	"syscall"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
)

// checkOwner fails if another user could read or replace files in a directory.
func checkOwner(directory string) error {
	about, err := os.Stat(directory)
	if err != nil {
		return err
	}
	owner, ok := about.Sys().(*syscall.Stat_t)
	if ok && int(owner.Uid) != os.Geteuid() {
		return exit.Misuse("%s: user %d owns the directory, and could read and change all permits", directory, owner.Uid).With("name another file with --store sqlite:///path/sema.db")
	}
	if about.Mode().Perm()&0o022 != 0 {
		return exit.Misuse("%s: other users can write to the directory (%v), and could change all permits", directory, about.Mode().Perm()).
			With("chmod 700 it, or name another file with --store sqlite:///path/sema.db")
	}
	return nil
}
