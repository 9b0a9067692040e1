// Command semavet finds mistakes in the use of Sema: permits that are never
// released, errors that are ignored. It loads packages itself
//
//	semavet ./...
//
// or runs as a tool of go vet, which caches its results:
//
//	go vet -vettool=$(which semavet) ./...
//
// Package checks documents what it reports, docs/semavet.md how to use it.
package main

import (
	"flag"

	"golang.org/x/tools/go/analysis/multichecker"

	"github.com/sema-go/sema/cmd/semavet/checks"
)

func main() {
	checks.AddFlags(flag.CommandLine)
	multichecker.Main(checks.Analyzers...)
}
