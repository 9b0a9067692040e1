// Package prelude declares what blocks of docs/testing.md use without declaring it.
package prelude

var seed uint64
