package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"os/user"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sema-go/sema/cmd/sema/internal/dial"
	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/flags"
	"github.com/sema-go/sema/cmd/sema/internal/runner"
	"github.com/sema-go/sema/cmd/sema/internal/scope"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/leasing"
)

func (p *program) acquireCommand() *cobra.Command {
	var (
		want  flags.Permits
		about string
	)
	c := &cobra.Command{
		Use:               "acquire NAME [-n CAPACITY] [flags]",
		ValidArgsFunction: p.names,
		Short:             "Acquire a permit that outlives this command",
		Long: `Acquire a permit and print the id of its lease, for scripts that cannot put their
work into one command. If they can, use 'sema run': it renews the lease and ends
the command when the lease is lost.

The lease is lost when the TTL of the semaphore has passed without 'sema renew'. So
renew it three times in a TTL, or create the semaphore with a TTL that is longer
than the work (--ttl). If the id cannot be printed, the permit is released again.

With --slots, the numbers of the permits follow the id: 1763220000000001.x 0,3

This needs a store (--store or SEMA_STORE): a permit on host: ends with its process.

Exit codes:
` + exit.Describe(exit.OK, exit.Usage, exit.Unavailable, exit.Output, exit.NoPermit, exit.Denied),
		Example: `  export SEMA_STORE=redis://redis.internal:6379
  lease=$(sema acquire deploys -n 1 --ttl 10m --wait 5m) || exit
  trap 'sema release deploys "$lease"' EXIT
  ./deploy.sh

  # Two of eight licences, which all machines share, with their numbers.
  set -- $(sema acquire licences -n 8 --slots 2) && lease=$1 slots=$2`,
	}
	want.Add(c.Flags())
	output := outputFlag(c, text, jsonLines)
	c.Flags().StringVar(&about, "about", "", "`TEXT` for 'sema show' and other waiters: what this is for (default: the user's name)")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := want.Check(c.Flags()); err != nil {
			return err
		}
		return p.withLeases(dial.Creating, func(ctx context.Context, d *leasing.Manager, s scope.Scope) error {
			if want.Slots > 0 {
				if _, err := scope.CheckNumbered(ctx, s, args[0], want.Capacity); err != nil {
					return err
				}
			}
			lease, err := p.acquire(ctx, d, s, requestFor(args[0], about, want))
			if err != nil {
				return err
			}
			p.compare(ctx, s, args[0], want)
			write := p.writeLease
			if want.Slots > 0 && *output != jsonLines {
				write = p.writeNumbered
			}
			if err := write(lease, *output); err != nil {
				return p.unprinted(d, lease)
			}
			return nil
		})
	}
	return c
}

// acquire acquires a lease. Without a wait, it retries while the store cannot decide yet.
func (p *program) acquire(ctx context.Context, d *leasing.Manager, s scope.Scope, r leasing.Request) (leasing.Lease, error) {
	if r.Wait > 0 || r.Unbounded {
		return d.Acquire(ctx, r)
	}
	return scope.Try(ctx, r.Semaphore, p.warn,
		func(ctx context.Context) (scope.State, error) { return s.Inspect(ctx, r.Semaphore) },
		func(ctx context.Context) (leasing.Lease, error) { return d.Acquire(ctx, r) })
}

// unprinted releases a lease whose id could not be printed: no script could release it.
func (p *program) unprinted(d *leasing.Manager, lease leasing.Lease) error {
	if lease.ID == "" { // of a rate: nothing to release
		return p.out.failure()
	}
	ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
	defer cancel()
	if err := d.Release(ctx, "", lease.Semaphore, lease.ID); err != nil {
		p.printf("the permit of %q is held until its TTL of %v has passed: %v", lease.Semaphore, lease.TTL, err)
	} else {
		p.printf("the permit of %q was released", lease.Semaphore)
	}
	return p.out.failure()
}

// requestFor returns the request for the permits that the flags describe.
func requestFor(name, about string, w flags.Permits) leasing.Request {
	r := leasing.Request{
		Semaphore: name, Weight: w.Weight, Wait: max(0, w.Wait), Unbounded: w.Wait < 0, Holder: about,
		Config: protocol.Config{
			Protocol: protocol.Version, Numbered: w.Slots > 0, Capacity: cmp.Or(w.Capacity, 1), TTL: protocol.Micros(cmp.Or(w.TTL, scope.DefaultTTL).Microseconds()),
		},
	}
	if r.Holder == "" {
		if u, err := user.Current(); err == nil {
			r.Holder = "user=" + u.Username
		}
	}
	return r
}

// compare warns if the stored configuration differs from the wanted one.
func (p *program) compare(ctx context.Context, s scope.Scope, name string, want flags.Permits) {
	state, err := s.Inspect(ctx, name)
	if err != nil {
		return
	}
	for _, d := range scope.Differences(scope.Want{Name: name, Capacity: want.Capacity, TTL: want.TTL}, state) {
		p.warn(d.Facts, d.Advice)
	}
}

func (p *program) renewCommand() *cobra.Command {
	c := &cobra.Command{
		Use:               "renew NAME LEASE",
		ValidArgsFunction: p.names,
		Short:             "Renew a lease for another TTL",
		Long: `Renew a lease for another TTL. LEASE is what 'sema acquire' printed; any machine may
renew it. Exit code 76: the lease is lost and another holder may be admitted, so
stop the work.`,
		Example: `  sema renew deploys "$lease" || exit   # stop if it is lost`,
	}
	output := outputFlag(c, text, jsonLines)
	c.RunE = func(_ *cobra.Command, args []string) error {
		return p.withLeases(dial.Changing, func(ctx context.Context, d *leasing.Manager, _ scope.Scope) error {
			lease, err := d.Renew(ctx, "", args[0], args[1])
			if err != nil {
				return err
			}
			return p.writeLease(lease, *output)
		})
	}
	return c
}

func (p *program) releaseCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "release NAME LEASE",
		ValidArgsFunction: p.names,
		Short:             "Release a lease of 'sema acquire'",
		Long: `Release a lease. LEASE is what 'sema acquire' printed; any machine may release it.
Exit code 76: it was lost before, so another holder may have worked at the same time.`,
		Example: `  sema release deploys "$lease"`,
		RunE: func(_ *cobra.Command, args []string) error {
			return p.withLeases(dial.Changing, func(ctx context.Context, d *leasing.Manager, _ scope.Scope) error {
				return d.Release(ctx, "", args[0], args[1])
			})
		},
	}
}

// withLeases opens the store for leases that outlive this process.
func (p *program) withLeases(access dial.Access, do func(context.Context, *leasing.Manager, scope.Scope) error) error {
	u, err := p.storeURL()
	if err != nil {
		return err
	}
	if u.IsHost() {
		return exit.Misuse("on host: a permit ends with the process that holds it, so this command cannot hold one").
			With("use 'sema run NAME -- COMMAND', or name another store with --store or SEMA_STORE")
	}
	// A closed pipe on stdout must not end this process while it holds a lease: the write
	// fails instead.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	opening, cancel := context.WithTimeoutCause(ctx, replyTimeout, errTimeout)
	defer cancel()
	opened, err := dial.Shared(opening, u, access)
	if err != nil {
		return err
	}
	s := scope.Of(opened)
	defer p.leave(ctx, s)
	d := leasing.New(opened, leasing.KeyInID)
	defer d.Close()
	return do(ctx, d, s)
}

// A leased is a lease for scripts. Its JSON has the names of the HTTP API.
type leased struct {
	Semaphore string         `json:"semaphore"`
	Lease     string         `json:"lease"`
	Weight    int64          `json:"weight"`
	TTL       scope.Duration `json:"ttl"`
	ValidFor  scope.Duration `json:"valid_for"`       // time until it expires without a renewal
	Slots     scope.Slots    `json:"slots,omitempty"` // "": the semaphore is not numbered
	Fence     fence          `json:"fence"`
}

// A fence is a [protocol.Fence] in JSON.
type fence struct {
	Seq     protocol.Seq      `json:"seq"`
	Floor   protocol.Seq      `json:"floor"`
	Revoked [][2]protocol.Seq `json:"revoked"` // from and to, both included
	Exact   bool              `json:"exact"`
}

// writeLease writes the id only, or JSON if requested. A rate has no id: its permits are not
// released.
func (p *program) writeLease(l leasing.Lease, f format) error {
	if f != jsonLines {
		if l.ID == "" {
			return nil
		}
		_, err := fmt.Fprintln(p.out, l.ID)
		return err
	}
	out := leased{
		Semaphore: l.Semaphore, Lease: l.ID, Weight: l.Weight, Slots: scope.SlotsOf(numbersOf(l)), TTL: scope.Duration(l.TTL), ValidFor: scope.Duration(l.Left.Round(time.Millisecond)),
		Fence: fence{Seq: l.Fence.Seq, Floor: l.Fence.Floor, Exact: l.Fence.Exact, Revoked: [][2]protocol.Seq{}},
	}
	for _, r := range l.Fence.Revoked {
		out.Fence.Revoked = append(out.Fence.Revoked, [2]protocol.Seq{r.From, r.To})
	}
	return writeJSON(p.out, out)
}

// numbersOf returns the numbers of a lease, nil if it has none.
func numbersOf(l leasing.Lease) []int64 {
	numbers, _ := l.Slots.Numbers() // unreadable numbers are omitted
	return numbers
}

// writeNumbered writes the id and the numbers, separated by a space.
func (p *program) writeNumbered(l leasing.Lease, _ format) error {
	_, err := fmt.Fprintln(p.out, l.ID, runner.ListOf(numbersOf(l)))
	return err
}
