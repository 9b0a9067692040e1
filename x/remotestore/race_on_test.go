//go:build race

package remotestore

// histories is small under the race detector. make conformance runs more histories.
const histories = 45
