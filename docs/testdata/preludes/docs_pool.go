package prelude

var url string
