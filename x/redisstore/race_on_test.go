//go:build race

package redisstore

// defaultHistories are few under the race detector. make conformance leads the
// engine through more.
const defaultHistories = 40
