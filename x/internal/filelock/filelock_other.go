//go:build (!unix && !windows) || solaris || aix

package filelock

import (
	"errors"
	"os"
)

// Try fails: these systems have no lock that is dropped when the process ends.
func Try(*os.File) (bool, error) { return false, errors.ErrUnsupported }

// Unlock does nothing.
func Unlock(*os.File) {}
