package serve

import (
	"crypto/rand"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/printable"
	"github.com/sema-go/sema/x/server"
)

// A newToken is a token with its entry in the configuration.
type newToken struct {
	Secret string        `json:"token"`
	Name   string        `json:"name"`
	Hash   string        `json:"hash"`
	Prefix string        `json:"prefix"`
	Verbs  []server.Verb `json:"verbs"`
}

// TokenCommand returns the command "sema token".
func TokenCommand() *cobra.Command {
	var t newToken
	var output string
	verbs := []string{"read", "acquire"}
	c := &cobra.Command{
		Use:   "token",
		Short: "Create a token for 'sema serve'",
		Long: `Create a token for 'sema serve', and its entry in the server's configuration.

The entry goes to stdout. It contains a hash of the token and no secret: append it to
the configuration file, as often as you like. Then send the server SIGHUP, or restart
it if this is its first token.

The token itself goes to stderr, and is shown only once. Clients send it as
SEMA_TOKEN (Sema's library and command line) or Authorization: Bearer (HTTP).`,
		Example: `  sema token --name ci --prefix ci- --verbs read,acquire >>sema.yaml
  sema token --name ops --verbs read,acquire,admin >>sema.yaml
  sema token --name ci -o json | jq -r .token`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	f.StringVar(&t.Name, "name", "client", "`NAME` of the client, for the log")
	f.StringVar(&t.Prefix, "prefix", "", "allow only semaphores whose names begin with `PREFIX`")
	f.StringSliceVar(&verbs, "verbs", verbs, "what it allows: `LIST` of read, acquire, admin")
	f.StringVarP(&output, "output", "o", "yaml", "`FORMAT`: yaml (an entry to append), or json (with the token in it)")
	c.RunE = func(c *cobra.Command, _ []string) error {
		switch {
		case output != "yaml" && output != "json":
			return exit.Misuse("-o %s: want yaml or json", output)
		case len(verbs) == 0:
			return exit.Misuse("--verbs: want at least one of read, acquire, admin")
		}
		t.Secret = "sema_" + rand.Text() + rand.Text()
		t.Hash = server.HashToken(t.Secret)
		for _, v := range verbs {
			t.Verbs = append(t.Verbs, server.Verb(strings.TrimSpace(v)))
		}
		if err := (server.Token{Name: t.Name, Hash: t.Hash, Prefix: t.Prefix, Verbs: t.Verbs}).Check(); err != nil {
			return &exit.Error{Code: exit.Usage, Err: err}
		}
		if output == "json" {
			return printable.WriteJSON(c.OutOrStdout(), t, "  ")
		}
		// An entry without its token is useless, so the token is written first.
		if _, err := fmt.Fprintf(c.ErrOrStderr(), "The token, shown only once (SEMA_TOKEN, or Authorization: Bearer):\n%s\n", t.Secret); err != nil {
			return fmt.Errorf("cannot write the token to stderr: %w", err)
		}
		return t.writeEntry(c.OutOrStdout())
	}
	return c
}

// writeEntry writes the entry as a separate YAML document, which can follow any content of the
// file.
func (t newToken) writeEntry(w io.Writer) error {
	var verbs []string
	for _, v := range t.Verbs {
		verbs = append(verbs, string(v))
	}
	_, err := fmt.Fprintf(w, "\n---\ntokens:\n  - name: %q\n    hash: %s\n    prefix: %q\n    verbs: [%s]\n", t.Name, t.Hash, t.Prefix, strings.Join(verbs, ", "))
	return err
}
