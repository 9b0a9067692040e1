package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/store"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/pgstore"
)

func (p *program) migrateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "migrate",
		Short: "Create or upgrade the tables of PostgreSQL",
		Long: `Create the tables and functions of Sema in PostgreSQL, or upgrade them. Running it
again changes nothing. The other stores need no such step.

Programs that acquire permits do this by themselves, unless they have no right to
create tables, or their URL contains sema_migrate=off: then run it once as a user
with that right, before the programs are upgraded. Commands that only read never do it.`,
		Example: `  SEMA_STORE='postgres://admin@db.internal/app' sema migrate`,
		RunE: func(*cobra.Command, []string) error {
			u, err := p.storeURL()
			if err != nil {
				return err
			}
			if !u.IsPostgres() {
				return exit.Misuse("%s: stores have no tables to migrate", u.Scheme()).With("name a postgres:// store with --store or SEMA_STORE")
			}
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if err := pgstore.Migrate(ctx, u.Raw()); err != nil {
				return store.Unreached(err)
			}
			p.printf("the tables are up to date")
			return nil
		},
	}
}

// A build describes this program.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Protocol int    `json:"protocol"` // version of the store protocol
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func thisBuild() build {
	b := build{Version: "unknown", Protocol: protocol.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Revision = s.Value
		}
	}
	return b
}

func (p *program) versionCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Example: `  sema version
  sema version -o json`,
	}
	output := outputFlag(c, text, jsonLines)
	c.RunE = func(*cobra.Command, []string) error {
		b := thisBuild()
		if *output == jsonLines {
			return writeJSON(p.out, b)
		}
		_, err := fmt.Fprintf(p.out, "sema %s (protocol %d, %s, %s)\n", b.Version, b.Protocol, b.Go, b.Platform)
		return err
	}
	return c
}
