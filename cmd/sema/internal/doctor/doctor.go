// Package doctor implements the command that examines a store: whether it can be reached, its
// latency, its clock, and whether its settings ensure that permits are neither lost nor
// granted twice. It acquires from a scratch semaphore, which it removes afterwards. It creates
// and upgrades no tables: older programs may use them. Package loadtest measures a store under
// load.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/dial"
	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/explain"
	"github.com/sema-go/sema/cmd/sema/internal/figure"
	"github.com/sema-go/sema/cmd/sema/internal/flags"
	"github.com/sema-go/sema/cmd/sema/internal/store"
	"github.com/sema-go/sema/fleet"
)

// settings holds the flags.
type settings struct {
	output  string
	ttl     time.Duration
	pings   int
	timeout time.Duration
}

// Command returns the command "sema doctor".
func Command(named func() (store.URL, error)) *cobra.Command {
	var s settings
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Examine a store and report what to fix",
		Long: `Examine a store: whether it can be reached, its latency, its clock, its settings, and
whether permits can be acquired. Processes that seem to wait for each other are
reported as a possible deadlock. One line per check; → is followed by advice.

It acquires a permit of a scratch semaphore, which it removes afterwards. It creates and
upgrades no tables. Exit codes: 0 no problem (there may be warnings), 1 a problem, 69
the store cannot be reached, or cannot be opened (wrong password, missing tables).`,
		Example: `  sema doctor --store redis://localhost:6379
  sema doctor --store postgres://sema@db/sema -o json | jq .problems`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case s.output != "text" && s.output != "json":
				return exit.Misuse("-o %s: want text or json", s.output)
			case s.pings < 2:
				return exit.Misuse("--pings %d: want 2 or more", s.pings)
			case s.ttl <= 0 || s.timeout <= 0:
				return exit.Misuse("--ttl %v, --timeout %v: want positive durations", s.ttl, s.timeout)
			}
			// The findings include what stores log when they are opened.
			slog.SetDefault(slog.New(slog.DiscardHandler))
			ctx, cancel := context.WithTimeout(c.Context(), s.timeout)
			defer cancel()
			r := examine(ctx, named, s)
			if err := r.print(c.OutOrStdout(), s.output); err != nil {
				return err
			}
			return r.status()
		},
	}
	f := c.Flags()
	f.StringVarP(&s.output, "output", "o", "text", "output `FORMAT`: text or json")
	flags.Duration(f, &s.ttl, "ttl", 15*time.Second, "judge the latency for semaphores with a TTL of `DURATION`")
	f.IntVar(&s.pings, "pings", 50, "measure `N` round trips, 20 ms apart")
	flags.Duration(f, &s.timeout, "timeout", time.Minute, "give up after `DURATION`")
	return c
}

// examine runs all checks, until one fails that the others depend on.
func examine(ctx context.Context, named func() (store.URL, error), s settings) *report {
	u, err := named()
	r := &report{Store: u.String()}
	if err != nil {
		r.misused = true
		r.add(fleet.Finding{Check: "store", Level: fleet.LevelProblem, Seen: err.Error(), Advice: sema.Hint(err)})
		return r
	}
	if u.IsHost() {
		examineHost(ctx, r, u)
		return r
	}
	if !reach(ctx, r, u.Servers()) {
		return r
	}
	client, ok := open(ctx, r, u, s.timeout)
	if !ok {
		return r
	}
	defer func() {
		if err := store.CloseClient(client); err != nil {
			r.add(fleet.Finding{Check: "close", Level: fleet.LevelWarning, Seen: err.Error(), Advice: "the scratch semaphore is removed after a TTL"})
		}
	}()
	p := probe{client: client, report: r, settings: s}
	p.roundTrips(ctx)
	findings, err := client.Examine(ctx)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
	case err != nil:
		r.add(fleet.Finding{Check: "settings", Level: fleet.LevelProblem, Seen: explain.WithoutPrefix(err.Error()), Advice: cmp.Or(tokenAdvice(err), "allow the user to read them")})
	}
	r.add(withSteps(findings)...)
	p.stored(ctx)
	p.deadlocks(ctx)
	p.use(ctx)
	return r
}

// leastOpenTimeout is the shortest timeout for TLS and authentication, and the one that results
// from the default --timeout. It is short, so that a server that does not respond is reported
// soon.
const leastOpenTimeout = 5 * time.Second

// open checks the steps after a connection: TLS, authentication, tables.
func open(ctx context.Context, r *report, u store.URL, timeout time.Duration) (*fleet.Client, bool) {
	ctx, cancel := context.WithTimeout(ctx, max(leastOpenTimeout, timeout/12))
	defer cancel()
	start := time.Now()
	opened, err := dial.Open(ctx, u, dial.Changing)
	var client *fleet.Client
	if err == nil {
		client = fleet.New(opened)
		_, err = client.Ping(ctx)
		if errors.Is(err, errors.ErrUnsupported) {
			err = nil
		}
		if err != nil {
			store.CloseClient(client)
		}
	}
	if err != nil {
		r.misused = errors.Is(err, sema.ErrInvalid)
		r.add(openFinding(u, err))
		return nil, false
	}
	r.Reached = true
	r.add(fleet.Finding{Check: "authenticate", Level: fleet.LevelOK, Seen: fmt.Sprintf("accepted after %v", figure.Short(time.Since(start)))})
	return client, true
}
