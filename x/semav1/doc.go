// Package semav1 contains the messages of the service as Go types. scripts/generate.sh
// generates them from x/proto/sema/v1. Package semav1connect contains the clients and
// handlers.
//
// Go programs that use semaphores need package fleet, with a URL of x/remotestore. This
// package is for other kinds of clients.
package semav1
