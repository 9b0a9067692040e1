package sema

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// A DiagnoseLevel selects how closely a semaphore is watched for leaks, overlong
// holds, acquire-order inversions and deadlocks.
type DiagnoseLevel uint8

const (
	// DiagnoseOff disables diagnostics and costs nothing. It is the default.
	DiagnoseOff DiagnoseLevel = iota
	// DiagnoseSampled records one acquire in 128, with its stack. It is cheap enough
	// to leave on, and finds what happens often. Holders are identified by
	// [Permit.Context] only.
	DiagnoseSampled
	// DiagnoseFull records every acquire, with its stack and goroutine, which takes
	// some microseconds each. Only this level searches for deadlocks among several
	// callers, once a caller has waited for a second.
	//
	// A permit counts as held by the goroutine that acquired it, unless that goroutine
	// hands it over to others. A permit that a timer or the end of a context will
	// release counts as handed over only after another permit, acquired at the same
	// place, was released in that way.
	DiagnoseFull
)

const sampleEvery = 128

// Diagnose sets the level of one semaphore. It overrides the environment variable
// SEMA_DEBUG (off, sampled or full), which sets the level of the process. It panics
// on an unknown level.
func Diagnose(l DiagnoseLevel) SharedOption {
	if l > DiagnoseFull {
		panic(fmt.Sprintf("sema: Diagnose(%d): want DiagnoseOff, DiagnoseSampled or DiagnoseFull", l))
	}
	return sharedFunc(func(c *config) { c.reports.level = l })
}

// WarnHold reports each permit that is held for longer than d, as an [EventOverheld]
// with the stack of the acquire. It records every acquire, as Diagnose([DiagnoseFull])
// does. It panics unless d is positive.
func WarnHold(d time.Duration) SharedOption {
	if d <= 0 {
		panic(fmt.Sprintf("sema: WarnHold(%v): want a positive duration", d))
	}
	return sharedFunc(func(c *config) { c.reports.warnHold = d })
}

// processLevel returns the level that SEMA_DEBUG sets.
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

// String returns "off", "sampled" or "full".
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

// sampleWeight returns the number of waits that one recorded wait stands for.
func (m *Monitor) sampleWeight() int64 {
	if m.level == DiagnoseSampled && m.warnHold == 0 {
		return sampleEvery
	}
	return 1
}

var defaultLog = LogTo(nil)
