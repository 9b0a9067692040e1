//go:build !race

package classic_test

// stressRounds are the rounds of each goroutine of a stress test.
const stressRounds = 5000
