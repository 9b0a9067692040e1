//go:build race

package host_test

// raceFactor is how much slower the race detector may make things.
const raceFactor = 5
