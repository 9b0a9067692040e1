package prelude

var db *fleet.Semaphore

func query(context.Context) error
