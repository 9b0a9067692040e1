package pgstore

import (
	"testing"

	"github.com/sema-go/sema/internal/storetest"
)

func TestStore_PrintsNoPassword(t *testing.T) {
	t.Parallel()
	storetest.Prints(t, &Store{address: "a:1/db", options: Options{Schema: "sema"}}, "postgres a:1/db, schema sema")
}
