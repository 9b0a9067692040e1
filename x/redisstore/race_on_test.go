//go:build race

package redisstore

// defaultHistories is small under the race detector. make conformance runs more
// histories.
const defaultHistories = 40
