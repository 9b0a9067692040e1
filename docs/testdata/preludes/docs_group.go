// Package prelude declares what blocks of docs/group.md use without declaring it.
package prelude

var urls []string

func fetch(context.Context, string) error
