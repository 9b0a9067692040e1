//go:build !linux

package sqlitestore

import (
	"errors"
	"os"
)

// allocate cannot allocate blocks behind the end of a file here.
func allocate(*os.File, int64, int64) error { return errors.ErrUnsupported }

func free(*os.File) (int64, error) { return 0, errors.ErrUnsupported }
