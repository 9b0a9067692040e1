//go:build unix && !linux && !solaris && !aix

package sqlitestore

import "os"

// tryLockDatabase locks nothing: here flock and POSIX locks exclude each other, so
// that a lock on the database would block SQLite.
func tryLockDatabase(*os.File) (bool, error) { return true, nil }

func unlockDatabase(*os.File) {}
