// Package seal closes the option interfaces of Sema to other modules: a method
// that takes a Key can be declared only where this package can be imported.
package seal

// A Key is the parameter of the methods that seal an interface.
type Key struct{}
