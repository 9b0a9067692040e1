package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sema-go/sema/cmd/sema/internal/scope"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/pgstore"
)

func (p *program) migrateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "migrate",
		Short: "Make the tables of PostgreSQL, or bring them up to date",
		Long: `Make the tables and functions in PostgreSQL, or bring them up to date. Programs do
that by themselves, unless they may not (sema_migrate=off, or no right to create):
then somebody who may runs this once, before they are upgraded. To run it again
changes nothing.

Other engines keep no tables.`,
		Example: `  SEMA_STORE='postgres://admin@db.internal/app' sema migrate`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			url := p.storeURL()
			if scheme, _, _ := strings.Cut(url, ":"); scheme != "postgres" && scheme != "postgresql" {
				return usage("%s: stores have no tables, there is nothing to migrate; name a postgres:// one with --store or SEMA_STORE", scheme)
			}
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if err := pgstore.Migrate(ctx, url); err != nil {
				return &scope.Unreachable{Cause: err}
			}
			p.say("the tables are up to date")
			return nil
		},
	}
}

// A build is which sema this is.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Protocol int    `json:"protocol"` // spoken with engines
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
		Args:  cobra.NoArgs,
	}
	output := outputFlag(c)
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
