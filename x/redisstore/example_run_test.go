package redisstore_test

import (
	"testing"

	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// TestExample_Prints runs Example with a store. go test only compiles it, since it needs
// one.
func TestExample_Prints(t *testing.T) {
	t.Setenv("SEMA_STORE", redistest.Start(t).URL())
	if got := storetest.Printed(t, Example); got != "1 of 40\n" {
		t.Errorf("printed %q", got)
	}
}
