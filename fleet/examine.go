package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// An Examiner is a Store that can say how its engine is set up and how it does.
type Examiner interface {
	// Ping is one round trip to the engine. It says what its clock shows, or zero
	// if it has none that counts.
	Ping(ctx context.Context) (time.Time, error)

	// Examine looks at everything that an operator should know of.
	Examine(ctx context.Context) ([]Finding, error)
}

// A Finding is one thing that was looked at.
type Finding struct {
	Check  string `json:"check"` // what it is about: "eviction", "replication"; engines use the same words
	Level  Level  `json:"level"`
	Seen   string `json:"seen"`
	Advice string `json:"advice,omitempty"` // what to do; none if all is well
}

// A Level is how bad a Finding is.
type Level string

const (
	Fine    Level = "ok"
	Warning Level = "warning" // it works, and could be better
	Problem Level = "problem" // it does not work, or permits may be forgotten or granted twice
)

// String is for logs.
func (f Finding) String() string {
	if f.Advice == "" {
		return f.Seen
	}
	return f.Seen + "; " + f.Advice
}

// Problems are those of some findings that are any, each as text that begins with
// where it was found.
func Problems(where string, findings []Finding) (texts []string) {
	for _, f := range findings {
		if f.Level == Problem {
			texts = append(texts, fmt.Sprintf("%s: %s", where, f))
		}
	}
	return texts
}

// Examine says how the engine is set up and how it does, as far as it can tell.
// An engine that cannot answers [errors.ErrUnsupported].
func (c *Client) Examine(ctx context.Context) ([]Finding, error) {
	if e, ok := c.store.(Examiner); ok {
		return e.Examine(ctx)
	}
	return nil, fmt.Errorf("examine the engine: %w", errors.ErrUnsupported)
}

// Ping is one round trip to the engine, and what its clock shows; zero if it has
// none that counts. An engine that cannot be asked answers
// [errors.ErrUnsupported].
func (c *Client) Ping(ctx context.Context) (time.Time, error) {
	if e, ok := c.store.(Examiner); ok {
		return e.Ping(ctx)
	}
	return time.Time{}, fmt.Errorf("ping the engine: %w", errors.ErrUnsupported)
}
