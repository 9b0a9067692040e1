// Package prelude declares what blocks of docs/how-to/memory-budget.md use without declaring it.
package prelude

type job struct {
	name      string
	megabytes int64
}
