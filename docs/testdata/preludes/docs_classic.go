// Package prelude declares what blocks of docs/classic.md use without declaring it.
package prelude

type Job struct{}

var (
	job                  Job
	batch                []Job
	urgent, normal, bulk *classic.Buffer[Job]
	full, empty          []byte
	workers, i           int
)

func handle(Job, error)
func read(context.Context) error
func reload(context.Context) error
func eat(context.Context) error
