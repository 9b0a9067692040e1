package stores_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/storetest/pgtest"
	"github.com/sema-go/sema/x/stores"
)

func TestOpen_KnowsEveryStore(t *testing.T) {
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

func TestOpen_ReadOnlyCreatesNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		directory := t.TempDir()
		at := "sqlite://" + filepath.Join(directory, "fleet.db") + "?prefix=a"
		if _, err := stores.Open(ctx, at, stores.ReadOnly()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a missing file: %v", err)
		}
		if left, err := os.ReadDir(directory); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
		writable, err := stores.Open(ctx, at)
		if err != nil {
			t.Fatal(err)
		}
		defer writable.Close()
		reader, err := stores.Open(ctx, at, stores.ReadOnly())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := reader.List(ctx, protocol.ListQuery{}); err != nil {
			t.Error(err)
		}
		if err := reader.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		server := pgtest.Start(t)
		if _, err := stores.Open(ctx, server.URL()+"&sema_migrate=auto", stores.ReadOnly()); err == nil || !strings.Contains(err.Error(), "sema migrate") {
			t.Errorf("missing tables: %v", err)
		}
		schemas, err := server.Psql("postgres", "SELECT count(*) FROM pg_namespace WHERE nspname = 'sema'")
		if err != nil || strings.TrimSpace(schemas) != "0" {
			t.Errorf("%q schemas were created, %v", schemas, err)
		}
	})
	t.Run("mem", func(t *testing.T) {
		t.Parallel()
		store, err := stores.Open(ctx, "mem:", stores.ReadOnly())
		if err != nil {
			t.Fatal(err)
		}
		store.Close()
	})
}
