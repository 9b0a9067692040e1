// Package protocol implements the fleet protocol as a pure, deterministic state
// machine. Its input is the state of one semaphore, the time on the store's clock
// and a batch; its output is a reply. It has no clock and no randomness, and it
// does no I/O.
//
// It is the oracle that every store is tested against, and the implementation of
// stores that are Go programs. Programs use package fleet; this package is for
// authors of stores.
//
// docs/protocol.md specifies the guarantees of the protocol and argues why they hold.
package protocol
