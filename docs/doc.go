// Package docs holds the documents of Sema. Its tests check them: each block of Go code is
// compiled, each program whose output is shown is run, shell commands are run, and links are
// followed. A block that no test checks is a failure. notes_test.go lists the notes that
// describe a block, in an HTML comment right before it.
package docs
