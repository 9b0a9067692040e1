package pgstore_test

import (
	"testing"

	"github.com/sema-go/sema/internal/enginetest"
	"github.com/sema-go/sema/internal/enginetest/pgtest"
)

// TestExample runs Example, which go test only compiles: it has no store by itself.
func TestExample(t *testing.T) {
	t.Setenv("SEMA_STORE", pgtest.Shared.Server(t).URL()+"&sema_schema=example")
	if got := enginetest.Printed(t, Example); got != "1 of 40\n" {
		t.Errorf("printed %q", got)
	}
}
