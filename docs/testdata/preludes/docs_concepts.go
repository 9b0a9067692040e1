// Package prelude declares what blocks of docs/concepts.md use without declaring it.
package prelude

func write(context.Context) error
