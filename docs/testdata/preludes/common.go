package prelude

var ctx context.Context
