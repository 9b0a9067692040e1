package pgstore_test

import (
	"testing"

	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/pgtest"
)

// TestExample_Prints runs Example, which go test only compiles: it has no store by itself.
func TestExample_Prints(t *testing.T) {
	t.Setenv("SEMA_STORE", pgtest.Shared.Server(t).URL()+"&sema_schema=example")
	if got := storetest.Printed(t, Example); got != "1 of 40\n" {
		t.Errorf("printed %q", got)
	}
}
