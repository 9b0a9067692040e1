// Command sema will run commands under a permit and serve permits to a fleet.
// It has no commands yet: use the library at the root of the repository.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "sema: no commands yet; see README.md for the library")
	os.Exit(64)
}
