package sysv

import "fmt"

// A Key is the number under which programs find a set.
type Key int32

// Private is the key of sets that cannot be found by key. Every [Create] with
// it makes another; hand the set's id on, for [OpenID].
const Private Key = 0

// KeyOf makes a key of a file that all programs know and a letter that tells
// sets for the same file apart, as ftok does in C. The file need not hold
// anything, but must not be replaced: what counts is the low 16 bits of its
// inode number and the low 8 of its device's, so two files may well have the
// same key. [Create] tells when a key is in use.
func KeyOf(path string, project byte) (Key, error) {
	dev, ino, err := fileIdentity(path)
	if err != nil {
		return 0, failed(path, "make a key", &reason{text: err.Error(), is: []error{err}})
	}
	key := Key(int32(uint32(project)<<24 | uint32(dev&0xff)<<16 | uint32(ino&0xffff)))
	if key == Private {
		return 0, invalid(path, "make a key", "the key would be 0, that of private sets", "use a project other than 0")
	}
	return key, nil
}

// String is the key as ipcs prints it.
func (k Key) String() string { return fmt.Sprintf("0x%08x", uint32(k)) }
