// Command sema bounds how many commands run at a time, on one machine or on many. It runs
// commands under a permit, shows and changes the semaphores that they share, and serves
// permits to clients that cannot reach a store.
//
//	sema run nightly -n 1 --no-wait -- ./backup.sh
//
// 'sema help' and docs/cli.md describe all commands.
package main

import (
	"os"

	"github.com/sema-go/sema/cmd/sema/internal/cli"

	_ "github.com/sema-go/sema/x/stores" // every store
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
