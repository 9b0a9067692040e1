package server

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// A Declaration configures the semaphores of a name, or of a pattern as of [path.Match],
// when they are created by the first request. Clients need not know it.
type Declaration struct {
	Name       string        `yaml:"name"`
	Capacity   int64         `yaml:"capacity"`
	TTL        time.Duration `yaml:"ttl"`         // default 15s
	Ramp       int64         `yaml:"ramp"`        // permits a second by which the capacity rises; 0: at once
	MaxWaiters *int64        `yaml:"max_waiters"` // nil: no bound; 0: no caller waits
	Window     time.Duration `yaml:"window"`      // of a rate: Capacity permits in each; 0: permits are released
}

// defaultTTL is the TTL of semaphores for which neither operator nor client gives one.
const defaultTTL = 15 * time.Second

// Config returns what a semaphore is created with.
func (d Declaration) Config() protocol.Config {
	c := protocol.Config{
		Protocol: protocol.Version, Capacity: d.Capacity, Ramp: d.Ramp, TTL: micros(cmp.Or(d.TTL, defaultTTL)),
	}
	if d.MaxWaiters != nil {
		bound, _ := newMaxWaiters(*d.MaxWaiters)
		c.MaxWaiters = int64(*bound)
	}
	if d.Window != 0 {
		c.Kind, c.Window = protocol.Rate, micros(d.Window)
	}
	return c
}

func micros(d time.Duration) protocol.Micros { return protocol.Micros(d.Microseconds()) }

// declarations are tried in order.
type declarations []Declaration

func newDeclarations(all []Declaration) (declarations, error) {
	declared := map[string]bool{}
	for _, d := range all {
		if declared[d.Name] {
			return nil, fmt.Errorf("semaphore %q is declared twice; only the first would count", d.Name)
		}
		declared[d.Name] = true
		if _, err := path.Match(d.Name, ""); err != nil || d.Name == "" {
			return nil, fmt.Errorf("declared semaphore %q: want a name, or a pattern with * and ?", d.Name)
		}
		if d.Capacity < 1 {
			return nil, fmt.Errorf("declared semaphore %q: capacity %d: want 1 or more, or nobody is ever let in", d.Name, d.Capacity)
		}
		if d.MaxWaiters != nil && *d.MaxWaiters < 0 {
			return nil, fmt.Errorf("declared semaphore %q: max_waiters %d: want %s, or none for no bound", d.Name, *d.MaxWaiters, wantWaiters)
		}
		if err := d.Config().Check(); err != nil {
			return nil, fmt.Errorf("declared semaphore %q: %w", d.Name, err)
		}
	}
	return all, nil
}

// of is the first that fits a name.
func (all declarations) of(name string) (d Declaration, ok bool) {
	for _, d := range all {
		if fits, _ := path.Match(d.Name, name); fits {
			return d, true
		}
	}
	return Declaration{}, false
}

// exactly reports whether a name itself is declared, and not only a pattern of it.
func (all declarations) exactly(name string) bool {
	return slices.ContainsFunc(all, func(d Declaration) bool { return d.Name == name })
}

// creation returns what an acquire creates a semaphore with: what the operator has
// declared, or else what the client asks for. It is zero if neither gives a capacity:
// then the semaphore has to exist, so that a misspelt name creates none.
func (s *service) creation(name string, wanted settings) (protocol.Config, error) {
	if wanted.Capacity != nil && *wanted.Capacity < 1 {
		return protocol.Config{}, invalid("capacity: %d: want 1 or more; PUT /v1/semaphores/{name} creates one that is paused", *wanted.Capacity)
	}
	if wanted.TTL != nil {
		if ttl := time.Duration(*wanted.TTL); ttl < minTTL || ttl > maxTTL {
			return protocol.Config{}, invalid("ttl: %v: want %v at least and %v at most; an operator may declare semaphores with more", ttl, minTTL, maxTTL)
		}
	}
	switch declared, ok := s.declared.of(name); {
	case ok:
		return declared.Config(), nil
	case wanted.Capacity == nil:
		return protocol.Config{}, nil
	}
	return s.newConfig(name, wanted)
}

// newConfig returns what configure creates a semaphore with.
func (s *service) newConfig(name string, wanted settings) (protocol.Config, error) {
	declared, ok := s.declared.of(name)
	if !ok {
		if wanted.Capacity == nil {
			return protocol.Config{}, invalid("capacity: there is no %q yet; give its capacity to create it", name)
		}
		if wanted.TTL != nil {
			if declared.TTL = time.Duration(*wanted.TTL); declared.TTL < minTTL {
				return protocol.Config{}, invalid("ttl: %v: want %v or more", declared.TTL, minTTL)
			}
		}
		if wanted.Window != nil {
			declared.Window = time.Duration(*wanted.Window)
		}
	}
	config := declared.Config()
	return config, wanted.apply(&config)
}
