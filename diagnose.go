package sema

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// A DiagnoseLevel says how closely a semaphore is watched for leaks, overlong holds,
// acquire-order inversions and deadlocks.
type DiagnoseLevel uint8

const (
	// DiagnoseOff costs nothing. The default.
	DiagnoseOff DiagnoseLevel = iota
	// DiagnoseSampled records one acquire in 128, with its stack. Cheap enough to
	// leave on; finds what happens often. A holder is known by [Permit.Context].
	DiagnoseSampled
	// DiagnoseFull records every acquire, with its stack and goroutine: some
	// microseconds each. Deadlocks are looked for at this level only, when a caller has
	// waited for a second. A permit counts as held by the goroutine that acquired it
	// unless that hands it over to others. One that is left to a timer or to the end of a
	// context cannot be told from one that is held, until the first is released so.
	DiagnoseFull
)

const sampleEvery = 128

// Diagnose sets the level of one semaphore, whatever the environment variable
// SEMA_DEBUG (off, sampled or full) says for the process.
func Diagnose(l DiagnoseLevel) SharedOption {
	if l > DiagnoseFull {
		panic(fmt.Sprintf("sema: Diagnose(%d): want DiagnoseOff, DiagnoseSampled or DiagnoseFull", l))
	}
	return sharedFunc(func(c *config) { c.reports.level = l })
}

// WarnHold reports, as an [EventOverheld] event with the stack of the acquire, each
// permit held for longer than d. Every acquire is recorded for it, as with
// Diagnose([DiagnoseFull]). It panics unless d is positive.
func WarnHold(d time.Duration) SharedOption {
	if d <= 0 {
		panic(fmt.Sprintf("sema: WarnHold(%v): want a positive duration", d))
	}
	return sharedFunc(func(c *config) { c.reports.warnHold = d })
}

// processLevel is what SEMA_DEBUG asks for.
var processLevel = sync.OnceValue(func() DiagnoseLevel {
	value := os.Getenv("SEMA_DEBUG")
	level, ok := parseLevel(value)
	if !ok {
		slog.Warn("sema: SEMA_DEBUG ignored: want off, sampled or full", "value", value)
	}
	return level
})

func parseLevel(s string) (l DiagnoseLevel, ok bool) {
	switch strings.ToLower(s) {
	case "", "off":
		return DiagnoseOff, true
	case "sampled":
		return DiagnoseSampled, true
	case "full":
		return DiagnoseFull, true
	}
	return DiagnoseOff, false
}

func (l DiagnoseLevel) String() string {
	switch l {
	case DiagnoseOff:
		return "off"
	case DiagnoseSampled:
		return "sampled"
	case DiagnoseFull:
		return "full"
	}
	return fmt.Sprintf("DiagnoseLevel(%d)", uint8(l))
}

// sampleWeight is how many waits a recorded one stands for.
func (m *Monitor) sampleWeight() int64 {
	if m.level == DiagnoseSampled && m.warnHold == 0 {
		return sampleEvery
	}
	return 1
}

var defaultLog = LogTo(nil)
