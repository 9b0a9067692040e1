// Package semav1connect has the clients and handlers of the service, by Connect:
// generated from x/proto/sema/v1 by scripts/generate.sh, and committed.
package semav1connect
