package server

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// settings configures a semaphore. A nil field keeps its value, or has its default if the
// semaphore is created. TTL, window and numbered are fixed at creation.
type settings struct {
	Capacity   *int64      `json:"capacity,omitempty"`
	TTL        *duration   `json:"ttl,omitempty"`
	Window     *duration   `json:"window,omitempty"` // of a rate; nil: not a rate
	Ramp       *int64      `json:"ramp,omitempty"`
	MaxWaiters *maxWaiters `json:"max_waiters,omitempty"`
	Draining   *bool       `json:"draining,omitempty"`
	Numbered   *bool       `json:"numbered,omitempty"`
}

// A maxWaiters bounds the queue of a semaphore, in its stored form: 0 is no bound, and
// [sema.NoWaiters] rejects every acquire that would wait. In the API, no bound is absent,
// and 0 is no waiters.
type maxWaiters int64

const wantWaiters = "a whole number, 0 for no waiters"

// newMaxWaiters converts the API's bound to the stored form.
func newMaxWaiters(n int64) (stored *maxWaiters, ok bool) {
	if n == 0 {
		return new(maxWaiters(sema.NoWaiters)), true
	}
	return new(maxWaiters(n)), n > 0 && n <= protocol.MaxCapacity
}

// shown converts the bound to the API's form.
func (m maxWaiters) shown() *int64 {
	switch {
	case m == 0:
		return nil
	case m < 0:
		return new(int64)
	}
	return new(int64(m))
}

// MarshalJSON implements [json.Marshaler], for the log.
func (m maxWaiters) MarshalJSON() ([]byte, error) { return json.Marshal(m.shown()) }

// String returns the settings for the log.
func (c settings) String() string {
	raw, _ := json.Marshal(c)
	return string(raw)
}

// apply applies the settings to a configuration. It fails if a setting is fixed or invalid.
func (c settings) apply(config *protocol.Config) error {
	if stored := span(config.TTL); c.TTL != nil && time.Duration(*c.TTL) != stored {
		return newProblem(kindFixed, "ttl: it is %v, fixed when the semaphore was created; delete the semaphore and create it with %v, or use another name", stored, time.Duration(*c.TTL))
	}
	if stored := span(config.Window); c.Window != nil && time.Duration(*c.Window) != stored {
		return newProblem(kindFixed, "window: it is %v, fixed when the semaphore was created; delete the semaphore and create it with %v, or use another name", stored, time.Duration(*c.Window))
	}
	if stored := config.Numbered; c.Numbered != nil && *c.Numbered != stored {
		return newProblem(kindFixed, "numbered: it is %t, fixed when the semaphore was created; delete the semaphore and create it with %t, or use another name", stored, *c.Numbered)
	}
	for _, number := range []struct {
		name  string
		to    *int64
		field *int64
	}{
		{"capacity", c.Capacity, &config.Capacity}, {"ramp", c.Ramp, &config.Ramp},
	} {
		if number.to == nil {
			continue
		}
		if *number.to < 0 || *number.to > protocol.MaxCapacity {
			return invalid("%s: %d: want 0 to %d", number.name, *number.to, int64(protocol.MaxCapacity))
		}
		*number.field = *number.to
	}
	if c.MaxWaiters != nil {
		config.MaxWaiters = int64(*c.MaxWaiters)
	}
	if c.Draining != nil {
		config.Draining = *c.Draining
	}
	if err := config.Check(); err != nil {
		return invalid("%v", err)
	}
	return nil
}

// A change is a change of a semaphore's configuration.
type change struct {
	created bool
	was, is protocol.Config // unless it was created
}

// kind returns the kind of the change for the history; "": nothing has changed.
func (c change) kind() string {
	switch {
	case c.created:
		return "configure"
	case c.was == c.is:
		return ""
	case c.is.Draining && !c.was.Draining:
		return "drain"
	case c.was.Draining && !c.is.Draining:
		return "resume"
	case c.is.Capacity != c.was.Capacity:
		return "resize"
	}
	return "configure"
}

// changeTries bounds how often a change is retried after concurrent changes.
const changeTries = 10

// change changes a semaphore, or creates it if mayCreate is true or it is declared, with
// optimistic concurrency: the store applies a change only to the version for which the preconditions
// were checked. If nothing would change, the version stays the same.
func (s *service) change(ctx context.Context, name string, when conditions, wanted settings, mayCreate bool) (change, error) {
	_, declared := s.declared.unused(name)
	for range changeTries {
		snapshot, err := s.snapshot(ctx, name)
		if errors.Is(err, fs.ErrNotExist) && (mayCreate || declared) {
			// A declared semaphore is not in the store before its first use, but its ETag can be read.
			if err := when.check(declared && when.match != nil, 0); err != nil {
				return change{}, err
			}
			if created, err := s.create(ctx, name, wanted); created || err != nil {
				return change{created: created}, err
			}
			continue
		}
		if err != nil {
			return change{}, err
		}
		if err := when.check(true, snapshot.Config.Version); err != nil {
			return change{}, err
		}
		config := snapshot.Config
		if err := wanted.apply(&config); err != nil {
			return change{}, err
		}
		if config == snapshot.Config {
			return change{was: config, is: config}, nil
		}
		err = s.store.Administer(ctx, name, fleet.Command{Configure: &config})
		if !errors.Is(err, protocol.ErrConflict) && !errors.Is(err, fs.ErrNotExist) {
			return change{was: snapshot.Config, is: config}, err
		}
	}
	return change{}, newProblem(kindPrecondition, "%q was changed concurrently %d times; retry", name, changeTries)
}

// create creates a semaphore by opening a session and ending it at once. It reports false
// if another request created the semaphore first.
func (s *service) create(ctx context.Context, name string, wanted settings) (created bool, err error) {
	config, err := s.newConfig(name, wanted)
	if err != nil {
		return false, err
	}
	var stored protocol.Config
	err = withinTimeout(ctx, func(ctx context.Context) error {
		var session protocol.Session
		by := protocol.Opener{Client: protocol.Client{Instance: "administrator " + callerOf(ctx).name}, Owner: protocol.Owner{Key: protocol.NewKey()}}
		if session, stored, err = s.store.Open(ctx, name, config, by); err != nil {
			return err
		}
		_, err = s.store.Apply(ctx, name, protocol.Batch{Session: session, Owner: by.Owner, Seq: 1, End: true})
		return err
	})
	config.Version = 1 // the version of a new semaphore
	return err == nil && stored == config, err
}
