//go:build !unix

package admit

// descriptors returns ErrNoLimit: there is no such limit on this system.
func descriptors() (limit, open int64, err error) { return 0, 0, ErrNoLimit }
