package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/seal"
)

// An Option configures [Client.Semaphore]: the options of this package, and those that
// all scopes share, such as [sema.MaxWait], [sema.Observe] and [sema.Diagnose].
//
// [TTL], [Ramp], [Rate] and [sema.MaxWaiters] are stored with the semaphore when it is
// created, and apply to all its clients. The others are the behaviour of this client.
type Option interface{ SharedOption(seal.Key) }

// Existing in place of a capacity uses a semaphore as it is stored. Acquires fail with
// [io/fs.ErrNotExist] if there is none.
const Existing = -1

type option func(*settings) error

// SharedOption implements [Option].
func (option) SharedOption(seal.Key) {}

// A Mode selects how permits come from the store. It is an [Option].
type Mode uint8

const (
	// ModeExact asks the store for each acquire: it has a lease of its own and a place
	// in the queue of all machines. The default.
	ModeExact Mode = iota
	// ModePooled leases blocks of permits and serves the goroutines of this process
	// from them at local speed. The bound is as strict. The order is kept within the
	// process only: a waiter elsewhere waits for a round trip, a quantum, and the
	// release of permits that are held now, at most.
	ModePooled
)

// SharedOption implements [Option].
func (Mode) SharedOption(seal.Key) {}

// TTL sets the time after which a process that does not renew its session has lost its
// permits. It is fixed when the semaphore is created. Default 15s.
func TTL(d time.Duration) Option {
	return option(func(s *settings) error { s.config.TTL = d; return positive("TTL", d) })
}

// Ramp bounds how fast the capacity rises, in permits per second, when it is raised.
// Default: at once.
func Ramp(perSecond int64) Option {
	return option(func(s *settings) error { s.config.Ramp = perSecond; return nil })
}

// Rate makes the capacity a rate: as many permits may be acquired in each period, and
// return by time alone. It is fixed when the semaphore is created.
func Rate(period time.Duration) Option {
	return option(func(s *settings) error { s.config.Rate = period; return positive("Rate", period) })
}

// Block bounds how many permits are kept ready beyond those in use, in [ModePooled].
// Default: by the share that this process uses of what is lent.
func Block(permits int64) Option {
	return option(func(s *settings) error {
		if permits < 1 {
			return fmt.Errorf("Block(%d): want a positive number", permits)
		}
		s.block = permits
		return nil
	})
}

// Quantum sets how long a block stays with this process while others wait for it, in
// [ModePooled]. Default 50ms.
func Quantum(d time.Duration) Option {
	return option(func(s *settings) error { s.quantum = d; return positive("Quantum", d) })
}

// TryTimeout bounds TryAcquire, which sends one batch and fails with ErrUnavailable if
// the store does not reply in time. Default 1s.
func TryTimeout(d time.Duration) Option {
	return option(func(s *settings) error { s.tryTimeout = d; return positive("TryTimeout", d) })
}

// UnavailableAfter sets how long Acquire waits for a store that does not reply, before
// it fails with ErrUnavailable. [sema.MaxWait] applies if it is shorter. Default 1m.
func UnavailableAfter(d time.Duration) Option {
	return option(func(s *settings) error { s.unavailableAfter = d; return positive("UnavailableAfter", d) })
}

// FailOpen makes this process grant up to limit permits of its own while the store does
// not reply. A fleet of N processes may then hold N × limit permits, besides those of
// the store that others still hold. Default: fail closed, so that acquires wait and
// finally fail with ErrUnavailable.
//
// Permits that were acquired before are lost when they cannot be renewed. Those that
// are acquired meanwhile cannot be lost, and stay valid when the store replies again.
func FailOpen(limit int64) Option {
	return option(func(s *settings) error {
		if limit < 1 {
			return fmt.Errorf("FailOpen(%d): want a positive limit", limit)
		}
		s.failOpen.limit = limit
		return nil
	})
}

// FailOpenAfter sets how long the store must not reply before [FailOpen] applies, at
// least 1s. Default: the TTL.
func FailOpenAfter(d time.Duration) Option {
	return option(func(s *settings) error {
		if d < minSilence {
			return fmt.Errorf("FailOpenAfter(%v): want at least %v, or slow replies count as none", d, minSilence)
		}
		s.failOpen.after = d
		return nil
	})
}

// RecoverAfter sets how long the store must reply without a failure before [FailOpen]
// no longer applies. Default: as [FailOpenAfter].
func RecoverAfter(d time.Duration) Option {
	return option(func(s *settings) error { s.failOpen.until = d; return positive("RecoverAfter", d) })
}

// Labels describe this client to operators: they are stored with its leases.
func Labels(labels map[string]string) Option {
	return option(func(s *settings) error {
		s.labels = maps.Clone(labels)
		if err := CheckMeta(textOf(labels)); err != nil {
			return fmt.Errorf("labels: %w", err)
		}
		for key := range labels {
			if key == "" || strings.ContainsAny(key, " =\"\n") {
				return fmt.Errorf("label %q: want a key without spaces, quotes and =", key)
			}
		}
		return nil
	})
}

func positive(name string, d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("%s(%v): want a positive duration", name, d)
	}
	return nil
}

const (
	defaultTTL              = 15 * time.Second
	defaultTryTimeout       = time.Second
	defaultUnavailableAfter = time.Minute
	minSilence              = time.Second
)

// settings are what the options of a semaphore ask for. The defaults are filled in,
// but for those of the stored configuration: there, zero means not asked for.
type settings struct {
	existing         bool
	config           Config // to create the semaphore with
	label            string // by which errors, events and reports call it
	mode             Mode
	block            int64
	quantum          time.Duration
	maxWait          time.Duration // 0: no bound
	tryTimeout       time.Duration
	unavailableAfter time.Duration
	failOpen         failOpenSettings
	labels           map[string]string
	shared           []sema.SharedOption
}

// failOpenSettings are what [FailOpen] and its kin ask for.
type failOpenSettings struct {
	limit        int64 // 0: fail closed
	after, until time.Duration
}

// newSettings returns what the options ask for.
func newSettings(name string, capacity int64, opts []Option) (*settings, error) {
	s := &settings{existing: capacity == Existing}
	if !s.existing {
		s.config.Capacity = capacity
	}
	for _, opt := range opts {
		if err := s.apply(opt); err != nil {
			return nil, &sema.Error{Op: "open", Name: name, Err: sema.ErrInvalid, Detail: err.Error()}
		}
	}
	s.shared = append([]sema.SharedOption{sema.Name(name)}, s.shared...)
	common := sema.SettingsOf(s.shared...)
	s.label, s.maxWait, s.config.MaxWaiters = common.Name, common.MaxWait, common.MaxWaiters
	s.fill()
	if err := s.check(); err != nil {
		return nil, &sema.Error{Op: "open", Name: name, Err: sema.ErrInvalid, Detail: err.Error()}
	}
	return s, nil
}

func (s *settings) apply(opt Option) error {
	switch o := opt.(type) {
	case option:
		return o(s)
	case Mode:
		s.mode = o
	case sema.SharedOption:
		s.shared = append(s.shared, o)
	default:
		return fmt.Errorf("option %T is of another scope", opt)
	}
	return nil
}

// fill sets the defaults.
func (s *settings) fill() {
	s.tryTimeout = cmp.Or(s.tryTimeout, defaultTryTimeout)
	s.unavailableAfter = cmp.Or(s.unavailableAfter, defaultUnavailableAfter)
	s.block = cmp.Or(s.block, protocol.MaxCapacity)
	s.quantum = cmp.Or(s.quantum, defaultQuantum)
	s.failOpen.after = cmp.Or(s.failOpen.after, max(cmp.Or(s.config.TTL, defaultTTL), minSilence))
	s.failOpen.until = cmp.Or(s.failOpen.until, s.failOpen.after)
}

// check fails on settings that contradict each other.
func (s *settings) check() error {
	switch {
	case s.mode > ModePooled:
		return fmt.Errorf("mode %d: want ModeExact or ModePooled", s.mode)
	case s.mode == ModePooled && s.config.Rate != 0:
		return errors.New("a rate cannot be pooled: its permits return by time")
	case s.existing:
		return nil
	}
	return s.stored().Check()
}

// stored returns the configuration to open the semaphore with. Of an existing one the
// store reads the protocol only.
func (s *settings) stored() protocol.Config {
	if s.existing {
		return protocol.Config{Protocol: protocol.Version}
	}
	c := s.config
	c.TTL = cmp.Or(c.TTL, defaultTTL)
	return c.protocol()
}

// differFrom returns in what the settings of a second use of a semaphore differ from
// those of the first, "" if in nothing. Observers and diagnostics are not compared.
func (s *settings) differFrom(first *settings) string {
	mine, others := *s, *first
	mine.shared, others.shared = nil, nil
	mine.config.TTL, others.config.TTL = cmp.Or(mine.config.TTL, defaultTTL), cmp.Or(others.config.TTL, defaultTTL)
	if mine.existing { // whatever is stored will do
		mine.existing, mine.config = others.existing, others.config
	}
	var differences []string
	a, b := reflect.ValueOf(mine), reflect.ValueOf(others)
	for i := range a.NumField() {
		if x, y := fmt.Sprint(a.Field(i)), fmt.Sprint(b.Field(i)); x != y {
			differences = append(differences, fmt.Sprintf("%s %s, not %s", a.Type().Field(i).Name, x, y))
		}
	}
	return strings.Join(differences, ", ")
}

// mismatch returns in what a stored configuration differs from what was asked for, ""
// if in nothing. What was not asked for may be anything.
func (s *settings) mismatch(stored Config) string {
	if s.existing {
		return ""
	}
	asked := s.config
	parts := []string{}
	note := func(differs bool, have, want string) {
		if differs {
			parts = append(parts, have+", not "+want)
		}
	}
	note(asked.Capacity != stored.Capacity, fmt.Sprintf("capacity %d", stored.Capacity), fmt.Sprint(asked.Capacity))
	note(asked.Rate != stored.Rate, periodText(stored.Rate), periodText(asked.Rate))
	note(asked.TTL != 0 && asked.TTL != stored.TTL, fmt.Sprintf("TTL %v", stored.TTL), fmt.Sprint(asked.TTL))
	note(asked.Ramp != 0 && asked.Ramp != stored.Ramp, fmt.Sprintf("ramp %d", stored.Ramp), fmt.Sprint(asked.Ramp))
	note(asked.MaxWaiters != 0 && asked.MaxWaiters != stored.MaxWaiters, waitersText(stored.MaxWaiters), waitersText(asked.MaxWaiters))
	return strings.Join(slices.Clip(parts), " and ")
}

func periodText(period time.Duration) string {
	if period == 0 {
		return "no rate"
	}
	return fmt.Sprintf("a rate per %v", period)
}

func waitersText(n int) string {
	switch n {
	case 0:
		return "no bound of waiters"
	case sema.NoWaiters:
		return "no waiters"
	}
	return fmt.Sprintf("at most %d waiters", n)
}
