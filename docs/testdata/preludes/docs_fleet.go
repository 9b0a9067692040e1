package prelude

var (
	client      *fleet.Client
	nearby      fleet.Store
	permit      sema.Permit
	tenant, all sema.Gate
)

func query(context.Context) error
func call(context.Context) error
