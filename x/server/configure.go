package server

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// A configuration is what can be changed. A field that is nil stays as it is.
type configuration struct {
	Capacity   *int64    `json:"capacity,omitempty"`
	Ramp       *int64    `json:"ramp,omitempty"`
	MaxWaiters *int64    `json:"max_waiters,omitempty"`
	Draining   *bool     `json:"draining,omitempty"`
	TTL        *duration `json:"ttl,omitempty"` // fixed when a semaphore is created

	rate     *time.Duration // the window, over RPC; likewise
	existing bool           // do not create a semaphore
}

// String returns the configuration for the log.
func (c configuration) String() string {
	raw, _ := json.Marshal(c)
	return string(raw)
}

// configure creates a semaphore, or changes it, if the preconditions hold.
func (s *Server) configure(w http.ResponseWriter, r *http.Request) error {
	var wanted configuration
	switch given, err := readJSON(r, &wanted); {
	case err != nil:
		return err
	case !given:
		return invalid(`the body is empty: want the settings, such as {"capacity": 8}`)
	}
	when, err := readConditions(r.Header)
	if err != nil {
		return err
	}
	name := r.PathValue("name")
	status, err := s.change(r.Context(), name, when, wanted)
	s.audit(r.Context(), "configure", name, wanted.String(), err)
	if err != nil {
		return err
	}
	snapshot, err := s.client.Inspect(r.Context(), name)
	if err != nil {
		return err
	}
	return tell(w, status, name, snapshot)
}

// changeTries bounds how often a change begins anew because of other changes.
const changeTries = 10

// change creates a semaphore, or changes it, by optimistic concurrency: the store
// applies a change only to the version for which the preconditions were checked. What
// is as wanted already is left alone, so that its version stays.
func (s *Server) change(ctx context.Context, name string, when conditions, wanted configuration) (status int, err error) {
	for range changeTries {
		snapshot, err := s.client.Inspect(ctx, name)
		if errors.Is(err, fs.ErrNotExist) && !wanted.existing {
			if err := when.check(false, 0); err != nil {
				return 0, err
			}
			if created, err := s.create(ctx, name, wanted); created || err != nil {
				return http.StatusCreated, err
			}
			continue
		}
		if err != nil {
			return 0, err
		}
		if err := when.check(true, snapshot.Config.Version); err != nil {
			return 0, err
		}
		config := snapshot.Config
		if err := wanted.apply(&config); err != nil {
			return 0, err
		}
		if config == snapshot.Config {
			return http.StatusOK, nil
		}
		err = s.store.Administer(ctx, name, fleet.Command{Configure: &config})
		if !errors.Is(err, protocol.ErrConflict) && !errors.Is(err, fs.ErrNotExist) {
			return http.StatusOK, err
		}
	}
	return 0, newProblem(kindPrecondition, "%q was changed by others %d times meanwhile; retry", name, changeTries)
}

// create creates a semaphore by a session that it ends at once. It reports false if
// another request was first.
func (s *Server) create(ctx context.Context, name string, wanted configuration) (created bool, err error) {
	config, err := s.newConfig(name, wanted)
	if err != nil {
		return false, err
	}
	var stored protocol.Config
	err = withinTimeout(ctx, func(ctx context.Context) error {
		var session protocol.Session
		by := protocol.Opener{Client: protocol.Client{Instance: "administrator " + who(ctx).name}, Owner: protocol.Owner{Key: protocol.NewKey()}}
		if session, stored, err = s.store.Open(ctx, name, config, by); err != nil {
			return err
		}
		_, err = s.store.Apply(ctx, name, protocol.Batch{Session: session, Owner: by.Owner, Seq: 1, End: true})
		return err
	})
	config.Version = 1 // of one that was just created
	return err == nil && stored == config, err
}

// newConfig returns what a semaphore is created with.
func (s *Server) newConfig(name string, wanted configuration) (protocol.Config, error) {
	declared, ok := s.declared.of(name)
	if !ok {
		if wanted.Capacity == nil {
			return protocol.Config{}, invalid("capacity: there is no %q yet; say its capacity to create it", name)
		}
		if wanted.TTL != nil {
			if declared.TTL = time.Duration(*wanted.TTL); declared.TTL < minTTL {
				return protocol.Config{}, invalid("ttl: %v: want %v or more", declared.TTL, minTTL)
			}
		}
		if wanted.rate != nil {
			declared.Rate = *wanted.rate
		}
	}
	config := declared.Config()
	return config, wanted.apply(&config)
}

// apply changes a configuration. It fails on what cannot be.
func (c configuration) apply(config *protocol.Config) error {
	if stored := time.Duration(span(config.TTL)); c.TTL != nil && time.Duration(*c.TTL) != stored {
		return newProblem(kindFixed, "ttl: it is %v, and is fixed when a semaphore is created; delete the semaphore and create it with %v, or use another name", stored, time.Duration(*c.TTL))
	}
	if stored := time.Duration(span(config.Window)); c.rate != nil && *c.rate != stored {
		return newProblem(kindFixed, "rate: it is %v, and is fixed when a semaphore is created; delete the semaphore and create it with %v, or use another name", stored, *c.rate)
	}
	for _, number := range []struct {
		name  string
		to    *int64
		field *int64
	}{
		{"capacity", c.Capacity, &config.Capacity}, {"ramp", c.Ramp, &config.Ramp}, {"max_waiters", c.MaxWaiters, &config.MaxWaiters},
	} {
		if number.to == nil {
			continue
		}
		if *number.to < 0 || *number.to > protocol.MaxCapacity {
			return invalid("%s: %d: want 0 to %d", number.name, *number.to, int64(protocol.MaxCapacity))
		}
		*number.field = *number.to
	}
	if c.Draining != nil {
		config.Draining = *c.Draining
	}
	if err := config.Check(); err != nil {
		return invalid("%v", err)
	}
	return nil
}
