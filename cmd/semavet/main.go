// Command semavet finds permits that are dropped. It reads packages itself
//
//	semavet ./...
//
// or is run by go vet, which caches what it has found:
//
//	go vet -vettool=$(which semavet) ./...
//
// What it finds stands in package dropped. docs/semavet.md says how to use it.
package main

import (
	"golang.org/x/tools/go/analysis/singlechecker"

	"github.com/sema-go/sema/cmd/semavet/dropped"
)

func main() { singlechecker.Main(dropped.Analyzer) }
