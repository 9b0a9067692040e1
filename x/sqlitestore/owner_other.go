//go:build (!unix && !windows) || solaris || aix

package sqlitestore

import (
	"errors"
	"os"
)

// tryLock has no lock that goes with the process here.
func tryLock(*os.File) (bool, error) { return false, errors.ErrUnsupported }

func unlock(*os.File) {}
