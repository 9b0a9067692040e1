// Package prelude declares what blocks of docs/pool.md use without declaring it.
package prelude

var url string
