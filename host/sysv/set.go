package sysv

import (
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// MaxValue is the highest value of a semaphore (SEMVMX).
const MaxValue = 32767

// ErrUninitialised is returned by [Open] and [OpenOrCreate] if a set exists, but is not
// initialised within two seconds.
var ErrUninitialised = errors.New("sema/sysv: set not initialised")

// A Set is a semaphore set of the kernel, identified by its id. It need not be closed.
// All methods may be called concurrently.
type Set struct {
	id  int
	key Key
	n   int
}

// Create creates a set with one semaphore for each value, from 0 to [MaxValue]. It
// fails with [fs.ErrExist] if the key is in use. The mode selects the users that may
// read (r) and change (w) values; the umask does not apply. Programs that open the set
// with this package, or as its documentation describes, never find it uninitialised.
func Create(key Key, mode fs.FileMode, values ...int) (*Set, error) {
	const verb = "create"
	name := nameOf(key, unknownID)
	if len(values) == 0 {
		return nil, invalid(name, verb, "no values", "pass one for each semaphore")
	}
	if mode&^fs.ModePerm != 0 {
		return nil, invalid(name, verb, fmt.Sprintf("mode %v has more than permission bits", mode), "use only permission bits")
	}
	if err := checkValues(name, verb, values); err != nil {
		return nil, err
	}
	id, err := semCreate(key, len(values), mode)
	if err != nil {
		return nil, failed(name, fmt.Sprintf("create %d semaphores", len(values)), createReason(key, err))
	}
	s := &Set{id, key, len(values)}
	if err := s.initialise(values); err != nil {
		semRemove(id) // no program has opened it yet
		return nil, s.wrap("initialise", err)
	}
	return s, nil
}

// initialise sets the values of a new set in one step that also sets the time of the
// last operation, for which [Open] waits. The operations add to the values, so that
// changes by a program that does not wait are kept.
func (s *Set) initialise(values []int) error {
	var adding []sembuf
	for num, v := range values {
		if v > 0 {
			adding = append(adding, sembuf{num: uint16(num), delta: int16(v)})
		}
	}
	if len(adding) == 0 {
		return semTry(s.id, []sembuf{{num: 0, delta: 0}})
	}
	err := semTry(s.id, adding)
	if !errors.Is(err, errTooManyOps) {
		return err
	}
	// These are too many for one semop. Set all values with semctl, which does not set
	// the time, and then execute a semop that changes nothing.
	if err := semSetAll(s.id, values); err != nil {
		return err
	}
	first := adding[0].num
	return semTry(s.id, []sembuf{{num: first, delta: -1}, {num: first, delta: +1}})
}

// OpenOrCreate opens the set with that key or, if there is none, creates it. It fails
// if the existing set has another number of semaphores. If many programs call it
// concurrently, one of them creates the set, and all open the same set.
func OpenOrCreate(key Key, mode fs.FileMode, values ...int) (*Set, error) {
	var last error
	for end := time.Now().Add(initialiseTimeout); time.Now().Before(end); {
		s, err := Create(key, mode, values...)
		if !errors.Is(err, fs.ErrExist) {
			return s, err
		}
		s, err = Open(key)
		if err == nil && s.n != len(values) {
			return nil, invalid(s.Name(), "open", fmt.Sprintf("it has %d semaphores, not %d", s.n, len(values)),
				"if it belongs to another program, use another key")
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return s, err
		}
		last = err // removed meanwhile: retry
	}
	return nil, last
}

// initialiseTimeout bounds how long Open waits for the creator, which needs some
// microseconds if it is alive and running.
const initialiseTimeout = 2 * time.Second

// Open opens the set with that key, which needs permission to read. If the set was just
// created, Open waits until it is initialised, and fails with [ErrUninitialised] if
// that takes longer than two seconds.
func Open(key Key) (*Set, error) {
	s, err := OpenAny(key)
	if err != nil {
		return nil, err
	}
	end := time.Now().Add(initialiseTimeout)
	for pause := 20 * time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		info, err := s.Stat()
		if err != nil {
			return nil, err
		}
		if !info.LastOp.IsZero() {
			return s, nil
		}
		if time.Now().After(end) {
			return nil, failed(s.label(), "open", &reason{is: []error{ErrUninitialised},
				text: "the set was not initialised in time",
				hint: "remove it and create it again; if its creator sets values with semctl alone, use OpenAny"})
		}
		time.Sleep(pause)
	}
}

// OpenAny opens the set with that key whether or not it is initialised. Use it for sets
// whose creator sets the values with semctl, which cannot be waited for.
func OpenAny(key Key) (*Set, error) {
	if key == Private {
		return nil, invalid(nameOf(key, unknownID), "open", "private sets are not found by key", "use OpenID")
	}
	id, err := semLookup(key)
	if err != nil {
		return nil, (&Set{id: unknownID, key: key}).wrap("open", err)
	}
	return openID(id, key)
}

// OpenID opens the set with that id: one created with the key [Private], or found by
// [List]. Like OpenAny it does not wait until the set is initialised.
func OpenID(id int) (*Set, error) { return openID(id, Private) }

func openID(id int, key Key) (*Set, error) {
	info, err := semStat(id)
	if err != nil {
		return nil, (&Set{id: id, key: key}).wrap("open", err)
	}
	return &Set{id, info.Key, info.Semaphores}, nil
}

// ID returns the id of the set, which the kernel chose.
func (s *Set) ID() int { return s.id }

// Key returns the key of the set, or [Private].
func (s *Set) Key() Key { return s.key }

// Len returns the number of semaphores in the set.
func (s *Set) Len() int { return s.n }

// Name returns "sysv" and the key, or the id of a private set. It is the same in all
// programs that use the set.
func (s *Set) Name() string { return nameOf(s.key, s.id) }

// unknownID is the id in errors about a key whose set is not found.
const unknownID = -1

func nameOf(key Key, id int) string {
	switch {
	case key != Private:
		return fmt.Sprintf("sysv %v", key)
	case id == unknownID:
		return "sysv private"
	}
	return fmt.Sprintf("sysv id %d", id)
}

// label returns the name and, for errors, the id, which ipcrm needs.
func (s *Set) label() string {
	if s.key == Private || s.id == unknownID {
		return s.Name()
	}
	return fmt.Sprintf("%s (id %d)", s.Name(), s.id)
}

// Remove removes the set at once. Waiters in all processes, and all later calls, fail
// with [sema.ErrClosed]. Only root, the owner and the creator may call it.
func (s *Set) Remove() error {
	if err := semRemove(s.id); err != nil {
		return s.wrap("remove", err)
	}
	return nil
}

// Remove removes the set with that id, like ipcrm -s.
func Remove(id int) error { return (&Set{id: id}).Remove() }
