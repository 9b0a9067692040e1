//go:build !race

package host_test

// raceFactor bounds the slowdown by the race detector.
const raceFactor = 1
