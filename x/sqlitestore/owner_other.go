//go:build (!unix && !windows) || solaris || aix

package sqlitestore

import (
	"errors"
	"os"
)

// tryLockDatabase fails, as [filelock.Try] does.
func tryLockDatabase(*os.File) (bool, error) { return false, errors.ErrUnsupported }

func unlockDatabase(*os.File) {}

func hardLinks(*os.File, os.FileInfo) (links, number uint64) { return 1, 0 }
