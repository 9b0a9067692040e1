//go:build race

package prom_test

// raceFactor divides the work of tests, which the race detector slows down.
const raceFactor = 10
