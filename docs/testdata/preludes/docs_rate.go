// Package prelude declares what blocks of docs/rate.md use without declaring it.
package prelude

var mail string

func send(string)
