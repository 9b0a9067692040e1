// Package describe formats the one-line String texts of semaphores of all scopes.
package describe

import (
	"fmt"
	"strings"
)

// Title returns the kind, followed by the quoted name if there is one.
func Title(kind, name string) string {
	if name == "" {
		return kind
	}
	return fmt.Sprintf("%s %q", kind, name)
}

// Usage returns how much of a semaphore is in use, as in
//
//	semaphore "db": 3 of 40 in use, 2 waiting
//
// followed by the states that are not empty. A negative capacity is unlimited.
func Usage(kind, name string, inUse, capacity int64, waiters int, states ...string) string {
	var b strings.Builder
	b.WriteString(Title(kind, name))
	if capacity < 0 {
		fmt.Fprintf(&b, ": %d in use, unlimited, %d waiting", inUse, waiters)
	} else {
		fmt.Fprintf(&b, ": %d of %d in use, %d waiting", inUse, capacity, waiters)
	}
	for _, state := range states {
		if state != "" {
			b.WriteString(", " + state)
		}
	}
	return b.String()
}

// State returns "closed" or "draining", or "" if a semaphore admits new callers.
func State(closed, draining bool) string {
	switch {
	case closed:
		return "closed"
	case draining:
		return "draining"
	}
	return ""
}
