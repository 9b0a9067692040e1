// Package prelude declares what blocks of docs/registry.md use without declaring it.
package prelude

var shutdown context.Context
