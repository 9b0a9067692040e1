//go:build race

package sema_test

// raceFactor is how much less of a stress test runs under the race detector.
const raceFactor = 10
