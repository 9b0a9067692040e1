package prelude

var urls []string

func fetch(context.Context, string) error
