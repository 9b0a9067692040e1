package prelude

var seed uint64
