package pgstore

import (
	"testing"

	"github.com/sema-go/sema/internal/enginetest"
)

func TestStore_PrintsNoPassword(t *testing.T) {
	t.Parallel()
	enginetest.Prints(t, &Store{address: "a:1/db", options: Options{Schema: "sema"}}, "postgres a:1/db, schema sema")
}
