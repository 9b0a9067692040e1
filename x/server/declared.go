package server

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// A Declaration configures semaphores, by name or by a pattern of [path.Match], when the
// first request creates them. Clients need not know the configuration.
type Declaration struct {
	Name       string        `yaml:"name"`
	Capacity   int64         `yaml:"capacity"`
	TTL        time.Duration `yaml:"ttl"`         // default 15s
	Ramp       int64         `yaml:"ramp"`        // permits per second by which the capacity rises; 0: at once
	MaxWaiters *int64        `yaml:"max_waiters"` // nil: no bound; 0: no waiters
	Window     time.Duration `yaml:"window"`      // of a rate: Capacity permits per window; 0: not a rate, permits are released
	Numbered   bool          `yaml:"numbered"`    // permits have numbers from 0 to Capacity-1; no two leases share a number
}

// defaultTTL is the TTL of a semaphore if neither operator nor client specifies one.
const defaultTTL = 15 * time.Second

// Config returns the configuration with which a semaphore is created.
func (d Declaration) Config() protocol.Config {
	c := protocol.Config{
		Protocol: protocol.Version, Capacity: d.Capacity, Ramp: d.Ramp, TTL: micros(cmp.Or(d.TTL, defaultTTL)), Numbered: d.Numbered,
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

// declarations holds declarations; the first match wins.
type declarations []declared

// A declared is a checked declaration.
type declared struct {
	name   string // or a pattern
	config protocol.Config
}

func newDeclarations(all []Declaration) (known declarations, err error) {
	for _, d := range all {
		if known.exactly(d.Name) {
			return nil, fmt.Errorf("semaphore %q is declared twice; only the first would be used", d.Name)
		}
		if _, err := path.Match(d.Name, ""); err != nil || d.Name == "" {
			return nil, fmt.Errorf("declared semaphore %q: want a name, or a pattern with * and ?", d.Name)
		}
		if d.Capacity < 1 {
			return nil, fmt.Errorf("declared semaphore %q: capacity %d: want 1 or more, or no acquire ever succeeds", d.Name, d.Capacity)
		}
		if d.MaxWaiters != nil && *d.MaxWaiters < 0 {
			return nil, fmt.Errorf("declared semaphore %q: max_waiters %d: want %s, or none for no bound", d.Name, *d.MaxWaiters, wantWaiters)
		}
		config := d.Config()
		if err := config.Check(); err != nil {
			return nil, fmt.Errorf("declared semaphore %q: %w", d.Name, err)
		}
		known = append(known, declared{d.Name, config})
	}
	return known, nil
}

// isName reports whether a declaration is of one semaphore, and not of a pattern.
func (d declared) isName() bool {
	return fleet.CheckName(d.name) == nil && !strings.ContainsAny(d.name, `*?[\`)
}

// of returns the configuration of the first declaration that matches a name.
func (all declarations) of(name string) (config protocol.Config, ok bool) {
	for _, d := range all {
		if fits, _ := path.Match(d.name, name); fits {
			return d.config, true
		}
	}
	return protocol.Config{}, false
}

// exactly reports whether a name is declared itself, not only by a pattern.
func (all declarations) exactly(name string) bool {
	return slices.ContainsFunc(all, func(d declared) bool { return d.name == name })
}

// unused returns the state of a semaphore that is declared by its name, before it exists in the
// store. Its version is 0, which no stored semaphore has.
func (all declarations) unused(name string) (snapshot protocol.Snapshot, ok bool) {
	if !slices.ContainsFunc(all, func(d declared) bool { return d.name == name && d.isName() }) {
		return protocol.Snapshot{}, false
	}
	config, _ := all.of(name) // an earlier pattern may match
	return protocol.Snapshot{Config: config, Effective: config.Capacity}, true
}

// addTo adds the declared semaphores that a query selects to a page of those that the store has.
// The next page begins after the last name of the result.
func (all declarations) addTo(page []protocol.Summary, q protocol.ListQuery) []protocol.Summary {
	stored := make(map[string]bool, len(page))
	for _, s := range page {
		stored[s.Name] = true
	}
	for _, d := range all {
		if d.name > q.After && strings.HasPrefix(d.name, q.Prefix) && !stored[d.name] {
			if unused, ok := all.unused(d.name); ok {
				page = append(page, unused.Summary(d.name))
			}
		}
	}
	if len(page) > len(stored) {
		slices.SortFunc(page, func(a, b protocol.Summary) int { return cmp.Compare(a.Name, b.Name) })
	}
	return page[:min(len(page), q.Most())]
}

// creation returns the configuration with which an acquire creates a semaphore: the
// operator's declaration, or else what the client asks for. It is zero if neither gives a
// capacity. Then the semaphore must exist, so that a misspelt name creates none.
func (s *service) creation(name string, wanted settings) (protocol.Config, error) {
	if wanted.Capacity != nil && *wanted.Capacity < 1 {
		return protocol.Config{}, invalid("capacity: %d: want 1 or more; PUT /v1/semaphores/{name} creates one that is paused", *wanted.Capacity)
	}
	if wanted.TTL != nil {
		if ttl := time.Duration(*wanted.TTL); ttl < minTTL || ttl > maxTTL {
			return protocol.Config{}, invalid("ttl: %v: want %v at least and %v at most; an operator may declare semaphores with more", ttl, minTTL, maxTTL)
		}
	}
	switch config, ok := s.declared.of(name); {
	case ok:
		return config, nil
	case wanted.Capacity == nil:
		return protocol.Config{}, nil
	}
	return s.newConfig(name, wanted)
}

// newConfig returns the configuration with which configure creates a semaphore.
func (s *service) newConfig(name string, wanted settings) (protocol.Config, error) {
	config, ok := s.declared.of(name)
	if !ok {
		if wanted.Capacity == nil {
			return protocol.Config{}, invalid("capacity: semaphore %q does not exist; specify a capacity to create it", name)
		}
		var d Declaration
		if wanted.TTL != nil {
			if d.TTL = time.Duration(*wanted.TTL); d.TTL < minTTL {
				return protocol.Config{}, invalid("ttl: %v: want %v or more", d.TTL, minTTL)
			}
		}
		if wanted.Window != nil {
			d.Window = time.Duration(*wanted.Window)
		}
		if wanted.Numbered != nil {
			d.Numbered = *wanted.Numbered
		}
		config = d.Config()
	}
	err := wanted.apply(&config)
	return config, err
}
