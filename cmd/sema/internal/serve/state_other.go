//go:build !unix

package serve

// checkOwner does nothing: profiles of users are their own.
func checkOwner(string) error { return nil }
