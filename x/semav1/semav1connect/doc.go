// Package semav1connect contains the Connect clients and handlers of the service.
// scripts/generate.sh generates them from x/proto/sema/v1.
package semav1connect
