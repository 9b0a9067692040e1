// Package stores links every engine for fleet semaphores, so that
// [github.com/sema-go/sema/fleet.Open] knows all their URLs.
package stores

import (
	_ "github.com/sema-go/sema/fleet/memstore" // mem:
	_ "github.com/sema-go/sema/x/etcdstore"    // etcd:
	_ "github.com/sema-go/sema/x/pgstore"      // postgres:, postgresql:
	_ "github.com/sema-go/sema/x/redisstore"   // redis:, rediss:
	_ "github.com/sema-go/sema/x/remotestore"  // sema:, semas:
	_ "github.com/sema-go/sema/x/sqlitestore"  // sqlite:
)
