package serve

import (
	"crypto/rand"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sema-go/sema/x/server"
)

// TokenCommand is `sema token`.
func TokenCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "token",
		Short: "Make a token for `sema serve`, and what its configuration has of it",
		Long: `Make a token. Give the first line to who is to use it (SEMA_TOKEN, or
Authorization: Bearer), and put the rest into the server's configuration, which
so has no secret in it.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			token := "sema_" + rand.Text() + rand.Text()
			_, err := fmt.Fprintf(c.OutOrStdout(), "%s\n\ntokens:\n  - name: someone\n    hash: %s\n    prefix: \"\"\n    verbs: [read, acquire]\n", token, server.HashToken(token))
			return err
		},
	}
}
