package prelude

var shutdown context.Context
