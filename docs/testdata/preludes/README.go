package prelude

var client *fleet.Client

func doQuery(context.Context) error
