//go:build !race

package classic_test

const (
	stressRounds = 5000 // of each goroutine of a stress test
	schedules    = 3000 // of an exploration that repeats what another one has
)
