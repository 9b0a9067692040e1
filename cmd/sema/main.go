// Command sema runs commands under a permit and serves permits to a fleet.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/sema-go/sema/cmd/sema/internal/serve"
	_ "github.com/sema-go/sema/x/stores"
)

func main() {
	root := &cobra.Command{Use: "sema", SilenceUsage: true}
	root.AddCommand(serve.Command("dev"), serve.TokenCommand())
	if root.Execute() != nil {
		os.Exit(1)
	}
}
