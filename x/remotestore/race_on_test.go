//go:build race

package remotestore

// make conformance leads the engine through more.
const histories = 45
