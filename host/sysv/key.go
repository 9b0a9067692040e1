package sysv

import "fmt"

// A Key is a number by which programs find a set.
type Key int32

// Private is the key of sets that cannot be found by key. Every [Create] with it
// creates another set. Pass the set's id to other programs, for [OpenID].
const Private Key = 0

// KeyOf returns the key for a file that all programs know, like ftok in C. The project
// distinguishes sets for the same file. The file may be empty, but must not be
// replaced: the key consists of the project, the low 16 bits of the inode number and
// the low 8 bits of the device number. So two files may well have the same key.
// [Create] fails if a key is in use.
func KeyOf(path string, project byte) (Key, error) {
	dev, ino, err := fileIdentity(path)
	if err != nil {
		return 0, failed(path, "key of file", &reason{text: err.Error(), is: []error{err}})
	}
	key := Key(int32(uint32(project)<<24 | uint32(dev&0xff)<<16 | uint32(ino&0xffff)))
	if key == Private {
		return 0, invalid(path, "key of file", "the key would be 0, which is the key of private sets", "use a project other than 0")
	}
	return key, nil
}

// String returns the key as ipcs prints it.
func (k Key) String() string { return fmt.Sprintf("0x%08x", uint32(k)) }
