// Package prelude declares what blocks of docs/fleet.md use without declaring it.
package prelude

var (
	client      *fleet.Client
	nearby      fleet.Store
	permit      sema.Permit
	tenant, all sema.Gate
)

func query(context.Context) error
func call(context.Context) error
