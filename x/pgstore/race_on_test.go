//go:build race

package pgstore

// defaultHistories is low under the race detector. make conformance applies more.
const defaultHistories = 40
