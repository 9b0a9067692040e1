package etcdstore_test

import (
	"testing"

	"github.com/sema-go/sema/internal/enginetest"
	"github.com/sema-go/sema/internal/enginetest/etcdtest"
)

// TestExample runs Example, which go test only compiles: it has no store by itself.
func TestExample(t *testing.T) {
	t.Setenv("SEMA_STORE", etcdtest.Start(t, 1).URL())
	if got := enginetest.Printed(t, Example); got != "1 of 40\n" {
		t.Errorf("printed %q", got)
	}
}
