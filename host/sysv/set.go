package sysv

import (
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// MaxValue is the highest value a semaphore can have (SEMVMX).
const MaxValue = 32767

// ErrUninitialised says that a set was created, and that then nothing was done
// with it for too long.
var ErrUninitialised = errors.New("sema/sysv: set not initialised")

// A Set is a semaphore set of the kernel, known by its id. All methods may be
// called concurrently. It holds nothing that must be closed.
type Set struct {
	id  int
	key Key
	n   int
}

// Create makes a set with one semaphore for each value, from 0 to [MaxValue].
// It fails with [fs.ErrExist] if the key is in use. The mode says who may read
// values (r) and change them (w); the umask has no part in it. Other programs
// find either no set or one that has its values, if they open it with this
// package or as its documentation says.
func Create(key Key, mode fs.FileMode, values ...int) (*Set, error) {
	const verb = "create"
	name := nameOf(key, unknownID)
	if len(values) == 0 {
		return nil, invalid(name, verb, "no values", "give one for each semaphore")
	}
	if mode&^fs.ModePerm != 0 {
		return nil, invalid(name, verb, fmt.Sprintf("mode %v has more than permission bits", mode), "use permission bits alone")
	}
	if err := checkValues(name, verb, values); err != nil {
		return nil, err
	}
	id, err := semCreate(key, len(values), mode)
	if err != nil {
		return nil, failed(name, fmt.Sprintf("create %d semaphores", len(values)), reasonNotToCreate(key, err))
	}
	s := &Set{id, key, len(values)}
	if err := s.initialise(values); err != nil {
		semRemove(id) // nobody has opened it yet
		return nil, s.wrap("initialise", err)
	}
	return s, nil
}

// initialise gives a new set its values in one step that also sets the time of
// the last operation, which is what [Open] waits for. The operations add, so
// that nothing is lost that a program which does not wait did already.
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
	// More than one semop can do. Set all, which leaves the time alone, and
	// then do something that changes nothing.
	if err := semSetAll(s.id, values); err != nil {
		return err
	}
	first := adding[0].num
	return semTry(s.id, []sembuf{{num: first, delta: -1}, {num: first, delta: +1}})
}

// OpenOrCreate opens the set with that key or, if there is none, creates it. It
// fails if there is one with another number of semaphores. Of many programs
// that call it at once one creates, and all have the same set.
func OpenOrCreate(key Key, mode fs.FileMode, values ...int) (*Set, error) {
	var last error
	for end := time.Now().Add(initialisedWithin); time.Now().Before(end); {
		s, err := Create(key, mode, values...)
		if !errors.Is(err, fs.ErrExist) {
			return s, err
		}
		s, err = Open(key)
		if err == nil && s.n != len(values) {
			return nil, invalid(s.Name(), "open", fmt.Sprintf("it has %d semaphores, not %d", s.n, len(values)),
				"if it is another program's, use another key")
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return s, err
		}
		last = err // removed in between; begin again
	}
	return nil, last
}

// initialisedWithin is how long Open waits for a creator, who needs some
// microseconds if it lives and runs.
const initialisedWithin = 2 * time.Second

// Open opens the set with that key, which needs permission to read. If it was
// just created, Open waits until it has its values, and fails with
// [ErrUninitialised] if that takes longer than two seconds.
func Open(key Key) (*Set, error) {
	s, err := OpenAny(key)
	if err != nil {
		return nil, err
	}
	end := time.Now().Add(initialisedWithin)
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
				text: "its creator died before it was initialised",
				hint: "Remove it and create it again; if its creator sets values with semctl alone, use OpenAny"})
		}
		time.Sleep(pause)
	}
}

// OpenAny opens the set with that key whether or not it has its values yet. It
// is for sets whose creator gives them by semctl, which leaves no trace to
// wait for.
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

// OpenID opens the set with that id: one made with the key [Private], or found
// by [List]. Like OpenAny it does not wait for values.
func OpenID(id int) (*Set, error) { return openID(id, Private) }

func openID(id int, key Key) (*Set, error) {
	info, err := semStat(id)
	if err != nil {
		return nil, (&Set{id: id, key: key}).wrap("open", err)
	}
	return &Set{id, info.Key, info.Semaphores}, nil
}

// ID is the kernel's number of the set.
func (s *Set) ID() int { return s.id }

// Key is what the set is found by, or [Private].
func (s *Set) Key() Key { return s.key }

// Len is how many semaphores the set has.
func (s *Set) Len() int { return s.n }

// Name is the same in all programs that use the set: "sysv" and the key, or
// the id of a private set.
func (s *Set) Name() string { return nameOf(s.key, s.id) }

// unknownID is for what is said about a key before its set is found.
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

// label is the name and, for whoever reads an error, the id that ipcrm wants.
func (s *Set) label() string {
	if s.key == Private || s.id == unknownID {
		return s.Name()
	}
	return fmt.Sprintf("%s (id %d)", s.Name(), s.id)
}

// Remove removes the set at once. Waiters, in any process, fail
// with [sema.ErrClosed]; so does every later call. Only root, its owner and its
// creator may.
func (s *Set) Remove() error {
	if err := semRemove(s.id); err != nil {
		return s.wrap("remove", err)
	}
	return nil
}

// Remove removes the set with that id, as ipcrm -s does.
func Remove(id int) error { return (&Set{id: id}).Remove() }
