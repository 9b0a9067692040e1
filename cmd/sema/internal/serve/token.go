package serve

import (
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sema-go/sema/cmd/sema/internal/engine"
	"github.com/sema-go/sema/x/server"
)

// TokenCommand is `sema token`.
func TokenCommand() *cobra.Command {
	token := server.Token{Name: "someone"}
	verbs := []string{"read", "acquire"}
	c := &cobra.Command{
		Use:   "token",
		Short: "Make a token for `sema serve`, and what its configuration has of it",
		Long: `Make a token. Give the first line to who is to use it (SEMA_TOKEN, or
Authorization: Bearer), and put the rest into the server's configuration, which
so has no secret in it.`,
		Example: `  sema token --name ci --prefix ci- --verbs read,acquire`,
		Args:    cobra.NoArgs,
	}
	f := c.Flags()
	f.StringVar(&token.Name, "name", token.Name, "who it is for, for the log")
	f.StringVar(&token.Prefix, "prefix", "", "of the names of semaphores that it may use; all of them have \"\"")
	f.StringSliceVar(&verbs, "verbs", verbs, "what it may do: read, acquire, admin")
	c.RunE = func(c *cobra.Command, _ []string) error {
		secret := "sema_" + rand.Text() + rand.Text()
		token.Hash = server.HashToken(secret)
		for _, v := range verbs {
			token.Verbs = append(token.Verbs, server.Verb(v))
		}
		if err := token.Check(); err != nil {
			return engine.Misused("%w", err)
		}
		_, err := fmt.Fprintf(c.OutOrStdout(), "%s\n\ntokens:\n  - name: %q\n    hash: %s\n    prefix: %q\n    verbs: [%s]\n",
			secret, token.Name, token.Hash, token.Prefix, strings.Join(verbs, ", "))
		return err
	}
	return c
}
