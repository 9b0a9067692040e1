package prelude

func write(context.Context) error
