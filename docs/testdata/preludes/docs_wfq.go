package prelude

var (
	tenant        string
	lock, workers *wfq.Queue
)

func work(context.Context) error
