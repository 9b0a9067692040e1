// Package prelude declares what blocks of docs/wfq.md use without declaring it.
package prelude

var (
	tenant        string
	lock, workers *wfq.Queue
)

func work(context.Context) error
