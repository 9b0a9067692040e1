//go:build race

package classic_test

// The race detector slows these tests down.
const (
	stressRounds = 500 // of each goroutine of a stress test
	schedules    = 300 // of an exploration that repeats what another one has
)
