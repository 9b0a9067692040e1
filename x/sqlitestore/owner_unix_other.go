//go:build unix && !linux && !solaris && !aix

package sqlitestore

import "os"

// tryLockDatabase does nothing: on these systems flock and POSIX locks conflict, so a
// lock on the database would block SQLite.
func tryLockDatabase(*os.File) (bool, error) { return true, nil }

func unlockDatabase(*os.File) {}
