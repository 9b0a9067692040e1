package host

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/seal"
)

// An Option configures [Open], and selects the directory of [List], [Remove],
// [BadFiles] and [Where]. It is an option of this package or a [sema.SharedOption]:
//
//   - [sema.MaxWait], [sema.Observe], [sema.Diagnose], [sema.WarnHold],
//     [sema.ReclaimLeaks] and [sema.CallSites] concern this process alone.
//   - [sema.MaxWaiters] is stored with the semaphore when it is created and bounds
//     the waiters of all processes together.
//   - [sema.Name] sets the name in errors, events and reports. Default: the name passed
//     to Open.
//
// An option of another package is [sema.ErrInvalid].
type Option interface{ SharedOption(seal.Key) }

// An option is an [Option] of this package.
type option func(*settings) error

// SharedOption implements [Option].
func (option) SharedOption(seal.Key) {}

// settings contains the values set by options.
type settings struct {
	sema.Settings
	shared []sema.SharedOption
	dir    string
	access access
}

// Dir selects the directory of the semaphore, which must exist. Containers need it, to
// share a mounted directory.
func Dir(path string) Option {
	return option(func(s *settings) (err error) {
		if path == "" {
			return invalid(`Dir(""): empty path`, "name an existing directory")
		}
		s.dir, err = filepath.Abs(path)
		return err
	})
}

// ShareWithGroup shares the semaphore among the members of a group, given by name or
// number, instead of among the processes of one user.
func ShareWithGroup(group string) Option {
	return option(func(s *settings) (err error) {
		s.access.gid, err = groupID(group)
		return err
	})
}

func newSettings(opts []Option) (settings, error) {
	s := settings{access: access{onlyUser}}
	if err := supported(); err != nil {
		return s, err
	}
	for _, opt := range opts {
		switch o := opt.(type) {
		case option:
			if err := o(&s); err != nil {
				return s, err
			}
		case sema.SharedOption:
			s.shared = append(s.shared, o)
		default:
			return s, invalid(fmt.Sprintf("%T is not an option of package host", opt), "use options of package host, and those that are a sema.SharedOption")
		}
	}
	s.Settings = sema.SettingsOf(s.shared...)
	if s.dir != "" {
		return s, s.access.checkNamed(s.dir)
	}
	var err error
	s.dir, err = directory(s.access)
	return s, err
}

// locate returns the settings and the path of the semaphore's file.
func locate(op, name string, opts []Option) (settings, string, error) {
	base, err := fileName(name)
	if err != nil {
		return settings{}, "", named(op, name, err)
	}
	s, err := newSettings(opts)
	if err != nil {
		return settings{}, "", named(op, name, err)
	}
	return s, filepath.Join(s.dir, base), nil
}

// named adds the operation and the semaphore's name to an error.
func named(op, name string, err error) error {
	var facts *sema.Error
	if errors.As(err, &facts) {
		facts.Op, facts.Name = op, name
		return facts
	}
	return &sema.Error{Op: op, Name: name, Err: err}
}
