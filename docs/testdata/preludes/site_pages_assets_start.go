// Package prelude declares what blocks of site/pages/assets/start.md use without declaring it.
package prelude

func doQuery(context.Context) error
