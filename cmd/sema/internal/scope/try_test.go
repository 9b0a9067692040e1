package scope

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
)

// A restarted store can decide after some time. It counts tries and warnings.
type restarted struct {
	decides  time.Time
	state    State
	err      error // until then
	final    error // from then on
	tries    int
	warnings []string
}

func (r *restarted) try(ctx context.Context) (string, error) {
	return Try(ctx, "db", func(text, _ string) { r.warnings = append(r.warnings, text) },
		func(context.Context) (State, error) { return r.state, nil },
		func(context.Context) (string, error) {
			r.tries++
			if left := time.Until(r.decides); left > 0 {
				return "", &sema.Error{Op: "try", Name: "db", After: min(left, 2*time.Second), Err: r.err}
			}
			return "granted", r.final
		})
}

func TestTry_WaitsUntilTheStoreCanDecide(t *testing.T) {
	t.Parallel()
	for _, undecided := range []error{sema.ErrFull, sema.ErrUnavailable} {
		for _, final := range []error{nil, sema.ErrFull} {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				r := &restarted{decides: start.Add(7 * time.Second), state: State{TTL: Duration(5 * time.Second)}, err: undecided, final: final}
				_, err := r.try(t.Context())
				if took := time.Since(start); err != final || took != 7*time.Second || r.tries != 5 || len(r.warnings) != 1 {
					t.Errorf("after %v: %v, %d tries, %q", took, err, r.tries, r.warnings)
				}
			})
		}
	}
}

func TestTry_GivesUpAfterTwoTTLs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := &restarted{decides: start.Add(time.Hour), state: State{TTL: Duration(5 * time.Second)}, err: sema.ErrUnavailable}
		_, err := r.try(t.Context())
		if took := time.Since(start); !errors.Is(err, sema.ErrUnavailable) || took != 10*time.Second || len(r.warnings) != 1 {
			t.Errorf("after %v: %v, %q", took, err, r.warnings)
		}
	})
}

// TestTry_WaitsForNothingElse checks that Try waits neither for a permit, nor for a rate, nor for a
// store that does not respond.
func TestTry_WaitsForNothingElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		for _, err := range []error{sema.ErrFull, sema.ErrUnavailable, sema.ErrDraining, errors.New("broken")} {
			r := &restarted{final: err}
			if _, got := r.try(t.Context()); got != err || r.tries != 1 {
				t.Errorf("%v: %v after %d tries", err, got, r.tries)
			}
		}
		rate := &restarted{decides: start.Add(time.Hour), state: State{Window: Duration(time.Minute)}, err: sema.ErrFull}
		if _, err := rate.try(t.Context()); !errors.Is(err, sema.ErrFull) || rate.tries != 1 || len(rate.warnings) > 0 {
			t.Errorf("a rate: %v after %d tries, %q", err, rate.tries, rate.warnings)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}

func TestTry_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("interrupted")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, why)
		defer cancel()
		r := &restarted{decides: time.Now().Add(time.Hour), state: State{TTL: Duration(5 * time.Second)}, err: sema.ErrFull}
		if _, err := r.try(ctx); err != why {
			t.Errorf("%v", err)
		}
	})
}
