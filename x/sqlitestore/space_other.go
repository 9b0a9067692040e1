//go:build !linux

package sqlitestore

import (
	"errors"
	"os"
)

// allocate fails: blocks beyond the end of a file are allocated only on Linux.
func allocate(*os.File, int64, int64) error { return errors.ErrUnsupported }

func free(*os.File) (int64, error) { return 0, errors.ErrUnsupported }
