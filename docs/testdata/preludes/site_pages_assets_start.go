package prelude

func doQuery(context.Context) error
