package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// An Examiner is a Store that can report how its server is set up and how it does.
type Examiner interface {
	// Ping makes one round trip to the server. It returns the time of its clock, or zero
	// if the store does not use one.
	Ping(ctx context.Context) (time.Time, error)

	// Examine checks everything that an operator should know of.
	Examine(ctx context.Context) ([]Finding, error)
}

// A Finding is the result of one check.
type Finding struct {
	Check  string `json:"check"` // what it is about: "eviction", "replication"; stores use the same words
	Level  Level  `json:"level"`
	Seen   string `json:"seen"`
	Advice string `json:"advice,omitempty"` // what to do; empty for LevelOK
}

// A Level is the severity of a Finding.
type Level string

const (
	LevelOK      Level = "ok"
	LevelWarning Level = "warning" // it works, and could be better
	LevelProblem Level = "problem" // it does not work, or permits may be lost or granted twice
)

// String returns the finding in one line.
func (f Finding) String() string {
	if f.Advice == "" {
		return f.Seen
	}
	return f.Seen + "; " + f.Advice
}

// Problems returns the findings of [LevelProblem], each as text that begins with where
// it was found.
func Problems(where string, findings []Finding) (texts []string) {
	for _, f := range findings {
		if f.Level == LevelProblem {
			texts = append(texts, fmt.Sprintf("%s: %s", where, f))
		}
	}
	return texts
}

// Examine reports how the store is set up and how it does. It fails with
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

// Ping makes one round trip to the store, and returns the time of its clock; zero if it
// uses none. It fails with [errors.ErrUnsupported] if the store is not an [Examiner].
func (c *Client) Ping(ctx context.Context) (time.Time, error) {
	if err := checkContext(ctx, "ping", ""); err != nil {
		return time.Time{}, err
	}
	if e, ok := c.store.(Examiner); ok {
		return e.Ping(ctx)
	}
	return time.Time{}, fmt.Errorf("ping the store: %w", errors.ErrUnsupported)
}
