//go:build (!unix && !windows) || solaris || aix

package sqlitestore

import (
	"errors"
	"os"
)

// tryLock fails: these systems have no lock that is dropped when the process ends.
func tryLock(*os.File) (bool, error) { return false, errors.ErrUnsupported }

func unlock(*os.File) {}

func tryLockDatabase(*os.File) (bool, error) { return false, errors.ErrUnsupported }

func unlockDatabase(*os.File) {}

func hardLinks(*os.File, os.FileInfo) (links, number uint64) { return 1, 0 }
