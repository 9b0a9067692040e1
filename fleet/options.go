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

// An Option configures [Client.Semaphore]: an option of this package, or one that all
// scopes share, such as [sema.MaxWait], [sema.Observe] and [sema.Diagnose].
//
// [TTL], [Ramp], [Rate], [Numbered] and [sema.MaxWaiters] are stored with the semaphore when it is
// created, and apply to all its clients. The others configure this client only.
type Option interface{ SharedOption(seal.Key) }

// Existing in place of a capacity uses a semaphore with its stored configuration. Acquires
// fail with [io/fs.ErrNotExist] if it does not exist.
const Existing = -1

type option func(*settings) error

// SharedOption implements [Option].
func (option) SharedOption(seal.Key) {}

// A Mode selects how permits are acquired from the store. It is an [Option].
type Mode uint8

const (
	// ModeExact sends a request for each acquire. Each permit has its own lease, and each
	// waiter is in the queue of all machines. The default.
	ModeExact Mode = iota
	// ModePooled leases blocks of permits, from which it serves the goroutines of this
	// process at local speed. The bound is as strict. The order is kept only within the
	// process: a waiter of another process waits at most for a round trip, a quantum, and
	// the release of permits that are held now.
	ModePooled
)

// SharedOption implements [Option].
func (Mode) SharedOption(seal.Key) {}

// TTL sets the time after which a process that does not renew its session has lost its
// permits. It is fixed when the semaphore is created. Default 15s.
func TTL(d time.Duration) Option {
	return option(func(s *settings) error { s.config.TTL = d; return positive("TTL", d) })
}

// Ramp bounds how fast a raised capacity grows, in permits per second. Default: no ramp.
func Ramp(perSecond int64) Option {
	return option(func(s *settings) error { s.config.Ramp = perSecond; return nil })
}

// Rate makes the capacity a rate: in each period, that many permits may be acquired. They
// return by time alone, or by [Semaphore.Settle]. It is fixed when the semaphore is created.
func Rate(period time.Duration) Option {
	return option(func(s *settings) error { s.config.Rate = period; return positive("Rate", period) })
}

// Numbered gives the permits numbers from 0 to the capacity less one, at most 1024, such
// as those of GPUs: [sema.Permit.Slots] returns them. No two permits that are held at the
// same time share a number, and the lowest free ones are granted first. It is fixed when
// the semaphore is created. It needs [ModeExact], and excludes [FailOpen], [Rate] and
// regions.
func Numbered() Option {
	return option(func(s *settings) error { s.config.Numbered = true; return nil })
}

// Block bounds how many unused permits are kept, in [ModePooled]. The default is in
// proportion to this process's part of all permits in use.
func Block(permits int64) Option {
	return option(func(s *settings) error {
		if permits < 1 {
			return fmt.Errorf("Block(%d): want a positive number", permits)
		}
		s.block = permits
		return nil
	})
}

// Quantum sets how long a block stays with this process while other clients wait, in
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
// not reply. A fleet of N processes may then hold N × limit permits, in addition to the
// permits of the store that are still held. Default: fail closed; acquires wait and
// finally fail with ErrUnavailable. A denial is a reply: if the store denies access, as a
// service does that does not know the token, acquires fail at once with [io/fs.ErrPermission],
// and the limit does not apply.
//
// Permits that were acquired from the store are lost when they cannot be renewed. Permits
// of the local limit cannot be lost, and stay valid when the store replies again.
//
// The local limit of a [Rate] is a rate, too: the process grants limit permits in any window.
func FailOpen(limit int64) Option {
	return option(func(s *settings) error {
		if limit < 1 {
			return fmt.Errorf("FailOpen(%d): want a positive limit", limit)
		}
		s.failOpen.limit = limit
		return nil
	})
}

// FailOpenAfter sets how long the store must be without a reply before [FailOpen] applies,
// at least 1s. Default: the TTL.
func FailOpenAfter(d time.Duration) Option {
	return option(func(s *settings) error {
		if d < minFailOpenAfter {
			return fmt.Errorf("FailOpenAfter(%v): want at least %v, or slow replies count as none", d, minFailOpenAfter)
		}
		s.failOpen.after = d
		return nil
	})
}

// RecoverAfter sets how long the store must reply without a failure before [FailOpen]
// no longer applies. Default: the same as [FailOpenAfter].
func RecoverAfter(d time.Duration) Option {
	return option(func(s *settings) error { s.failOpen.until = d; return positive("RecoverAfter", d) })
}

// Labels sets labels that describe this client to operators. They are stored with its
// leases.
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
	minFailOpenAfter        = time.Second
)

// settings are the values of a semaphore's options. Defaults are filled in, except in
// config: there, zero means that no option was given.
type settings struct {
	existing         bool
	config           Config // requested configuration
	label            string // name in errors, events and reports
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

// failOpenSettings are the values of [FailOpen], [FailOpenAfter] and [RecoverAfter].
type failOpenSettings struct {
	limit        int64 // 0: fail closed
	after, until time.Duration
}

// newSettings returns the settings that the options select.
func newSettings(name string, capacity int64, opts []Option) (*settings, error) {
	s := &settings{existing: capacity == Existing}
	if !s.existing {
		s.config.Capacity = capacity
	}
	for _, opt := range opts {
		if err := s.apply(opt); err != nil {
			return nil, &sema.Error{Op: "open", Name: name, Err: sema.ErrInvalid, Detail: err.Error(), Advice: sema.Hint(err)}
		}
	}
	s.shared = append([]sema.SharedOption{sema.Name(name)}, s.shared...)
	common := sema.SettingsOf(s.shared...)
	s.label, s.maxWait, s.config.MaxWaiters = common.Name, common.MaxWait, common.MaxWaiters
	err := s.checkUnused()
	s.fill()
	if err == nil {
		err = s.check()
	}
	if err != nil {
		return nil, &sema.Error{Op: "open", Name: name, Err: sema.ErrInvalid, Detail: err.Error(), Advice: sema.Hint(err)}
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
		return &adviceError{fmt.Sprintf("%T is not an option of package fleet", opt), "use options of package fleet, and those that are a sema.SharedOption"}
	}
	return nil
}

// fill sets defaults.
func (s *settings) fill() {
	s.tryTimeout = cmp.Or(s.tryTimeout, defaultTryTimeout)
	s.unavailableAfter = cmp.Or(s.unavailableAfter, defaultUnavailableAfter)
	s.block = cmp.Or(s.block, protocol.MaxCapacity)
	s.quantum = cmp.Or(s.quantum, defaultQuantum)
	s.failOpen.after = cmp.Or(s.failOpen.after, max(cmp.Or(s.config.TTL, defaultTTL), minFailOpenAfter))
	s.failOpen.until = cmp.Or(s.failOpen.until, s.failOpen.after)
}

// checkUnused fails if an option has no effect because the one that it refines is missing.
// It must be called before fill.
func (s *settings) checkUnused() error {
	switch {
	case s.mode == ModeExact && (s.block != 0 || s.quantum != 0):
		return &adviceError{"Block and Quantum have no effect in ModeExact", "add ModePooled, or omit them"}
	case s.failOpen.limit == 0 && (s.failOpen.after != 0 || s.failOpen.until != 0):
		return &adviceError{"FailOpenAfter and RecoverAfter have no effect without FailOpen", "add FailOpen: without it, acquires fail while the store does not reply"}
	}
	return nil
}

// check fails if settings are invalid or contradict each other.
func (s *settings) check() error {
	switch {
	case s.mode > ModePooled:
		return fmt.Errorf("mode %d: want ModeExact or ModePooled", s.mode)
	case s.mode == ModePooled && s.config.Rate != 0:
		return errors.New("a rate cannot be pooled: its permits return by time")
	case s.config.Numbered:
		if err := s.checkNumbered(); err != nil {
			return err
		}
	}
	if s.existing {
		return nil
	}
	return s.stored().Check()
}

// checkNumbered fails if this client cannot use a semaphore with numbered permits. A pool
// leases blocks, whose permits have no numbers. The permits of a local limit have none
// either, so that two processes would use one device.
func (s *settings) checkNumbered() error {
	switch {
	case s.mode == ModePooled:
		return &adviceError{"numbered permits cannot be pooled: a pool leases blocks", "use ModeExact, the default"}
	case s.failOpen.limit != 0:
		return &adviceError{"numbered permits cannot fail open: two processes would use the same device", "omit FailOpen; acquires then fail with ErrUnavailable while the store does not reply"}
	}
	return nil
}

// An adviceError is an error of options with a hint.
type adviceError struct{ facts, advice string }

func (e *adviceError) Error() string { return e.facts }

// Hint returns the advice that [sema.Hint] reports.
func (e *adviceError) Hint() string { return e.advice }

// stored returns the configuration to open the semaphore with. For an existing one the
// store reads only Protocol.
func (s *settings) stored() protocol.Config {
	if s.existing {
		return protocol.Config{Protocol: protocol.Version}
	}
	c := s.config
	c.TTL = cmp.Or(c.TTL, defaultTTL)
	return c.protocol()
}

// differFrom describes how the settings of a second call differ from those of the first. It
// returns "" if they are equal. Observers and diagnostics are not compared.
func (s *settings) differFrom(first *settings) string {
	mine, others := *s, *first
	mine.shared, others.shared = nil, nil
	mine.config.TTL, others.config.TTL = cmp.Or(mine.config.TTL, defaultTTL), cmp.Or(others.config.TTL, defaultTTL)
	if mine.failOpen.limit == 0 && others.failOpen.limit == 0 { // the times have no effect, and their defaults depend on the TTL
		mine.failOpen, others.failOpen = failOpenSettings{}, failOpenSettings{}
	}
	if mine.existing { // any stored configuration matches
		mine.existing, mine.config = others.existing, others.config
	}
	return strings.Join(differences("", reflect.ValueOf(others), reflect.ValueOf(mine)), ", ")
}

// differences lists the fields of a struct, and of the structs in it, that are not those of
// another one. The fields may be unexported, so that their String methods cannot be called.
func differences(of string, present, requested reflect.Value) (all []string) {
	text := func(v reflect.Value) string {
		if v.Type() == reflect.TypeFor[time.Duration]() {
			return time.Duration(v.Int()).String()
		}
		return fmt.Sprint(v)
	}
	for i := range present.NumField() {
		name, x, y := present.Type().Field(i).Name, present.Field(i), requested.Field(i)
		if name == "config" {
			name = ""
		}
		if x.Kind() == reflect.Struct {
			all = append(all, differences(strings.TrimSpace(of+" "+name), x, y)...)
		} else if a, b := text(x), text(y); a != b {
			all = append(all, strings.TrimSpace(of+" "+name)+" "+a+", not "+b)
		}
	}
	return all
}

// mismatch describes how a stored configuration differs from the requested one. It returns
// "" if they match. Values that were not requested match anything.
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
	note(asked.Numbered && !stored.Numbered, "no numbers", "numbered")
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
