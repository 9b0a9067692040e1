//go:build race

package classic_test

// stressRounds are the rounds of each goroutine of a stress test. The race detector slows
// them down.
const stressRounds = 500
