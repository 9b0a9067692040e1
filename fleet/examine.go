package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// An Examiner is a Store that can report the setup and the health of its server.
type Examiner interface {
	// Ping makes one round trip to the server. It returns the time of the server's clock,
	// or zero if the store does not use that clock.
	Ping(ctx context.Context) (time.Time, error)

	// Examine checks everything that an operator should know.
	Examine(ctx context.Context) ([]Finding, error)
}

// A Finding is the result of one check.
type Finding struct {
	Check  string `json:"check"` // subject: "eviction", "replication", …; the same for all stores
	Level  Level  `json:"level"`
	Seen   string `json:"seen"`
	Advice string `json:"advice,omitempty"` // what to do; empty for LevelOK
}

// A Level is the severity of a Finding.
type Level string

const (
	LevelOK      Level = "ok"
	LevelWarning Level = "warning" // it works, but could be improved
	LevelProblem Level = "problem" // it does not work, or permits may be lost or granted twice
)

// String returns the finding in one line.
func (f Finding) String() string {
	if f.Advice == "" {
		return f.Seen
	}
	return f.Seen + "; " + f.Advice
}

// Problems returns the findings of [LevelProblem] as texts that begin with where.
func Problems(where string, findings []Finding) (texts []string) {
	for _, f := range findings {
		if f.Level == LevelProblem {
			texts = append(texts, fmt.Sprintf("%s: %s", where, f))
		}
	}
	return texts
}

// Examine reports the setup and the health of the store. It fails with
// [errors.ErrUnsupported] if the store is not an [Examiner].
func (c *Client) Examine(ctx context.Context) ([]Finding, error) {
	if err := checkContext(ctx, "examine", ""); err != nil {
		return nil, err
	}
	if e, ok := c.store.(Examiner); ok {
		return e.Examine(ctx)
	}
	return nil, fmt.Errorf("examine the store: %w", errors.ErrUnsupported)
}

// Ping makes one round trip to the store. It returns the time of the store's clock, or zero
// if it uses none. It fails with [errors.ErrUnsupported] if the store is not an [Examiner].
func (c *Client) Ping(ctx context.Context) (time.Time, error) {
	if err := checkContext(ctx, "ping", ""); err != nil {
		return time.Time{}, err
	}
	if e, ok := c.store.(Examiner); ok {
		return e.Ping(ctx)
	}
	return time.Time{}, fmt.Errorf("ping the store: %w", errors.ErrUnsupported)
}
