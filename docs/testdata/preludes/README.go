// Package prelude declares what blocks of README.md use without declaring it.
package prelude

var client *fleet.Client

func doQuery(context.Context) error
