//go:build race

package sema_test

// raceFactor divides the work of stress tests, which the race detector slows down.
const raceFactor = 10
