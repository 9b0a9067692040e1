// Package stores links every engine for fleet semaphores, so that
// [github.com/sema-go/sema/fleet.Open] knows all their URLs.
package stores

import (
	_ "github.com/sema-go/sema/fleet/memstore" // mem:
	_ "github.com/sema-go/sema/x/sqlitestore"  // sqlite:
)
