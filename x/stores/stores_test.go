package stores_test

import (
	"context"
	"strings"
	"testing"

	"github.com/sema-go/sema/fleet"
	_ "github.com/sema-go/sema/x/stores"
)

func TestEveryEngineIsLinked(t *testing.T) {
	t.Parallel()
	_, err := fleet.Open(context.Background(), "nonsense:")
	if err == nil {
		t.Fatal("opened nonsense")
	}
	for _, scheme := range []string{"mem", "sqlite", "redis", "rediss", "postgres", "postgresql", "etcd", "sema", "semas"} {
		if !strings.Contains(err.Error(), " "+scheme+",") && !strings.Contains(err.Error(), " "+scheme+")") {
			t.Errorf("%q does not name %q", err, scheme)
		}
	}
}
