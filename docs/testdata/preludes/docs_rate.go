package prelude

var mail string

func send(string)
