// Package prelude declares what blocks of docs/migrating.md use without declaring it.
package prelude

var (
	urls   []string
	rdb    *redis.Client
	etcd   *clientv3.Client
	client *fleet.Client
	path   string
)

func fetch(context.Context, string) error
func work(context.Context) error
