// Package semav1 is the messages of the service, as Go types: generated from
// x/proto/sema/v1 by scripts/generate.sh, and committed. Package semav1connect has
// its clients and handlers.
//
// Go programs that want semaphores use package fleet, with a URL of x/remotestore;
// these are for those who write clients of other kinds.
package semav1
