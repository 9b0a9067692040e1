// Package protocol is the fleet protocol as a pure, deterministic state
// machine: the state of one semaphore, the time on the engine's clock and a
// batch go in, a reply comes out. It has no clock, no randomness and does no
// I/O.
//
// It is the oracle that every engine is tested against, and the engine itself
// where an engine is a Go program. Programs use package fleet; this one is for
// those who write engines.
//
// docs/protocol.md says what the protocol promises and why it keeps it.
package protocol
