package pgstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/pgtest"
)

// wantUnavailable fails the test unless the error is ErrUnavailable and has the texts.
func wantUnavailable(t *testing.T, what string, err error, texts ...string) {
	t.Helper()
	if !errors.Is(err, sema.ErrUnavailable) {
		t.Errorf("%s: %v, want ErrUnavailable", what, err)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, want %q", what, err, text)
		}
	}
}

// TestStore_TimesOutIfTheServerDoesNotReply calls every method with a context that has no
// deadline.
func TestStore_TimesOutIfTheServerDoesNotReply(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	p := storetest.NewProxy(t, server.Address)
	u := server.URLOf("postgres", "postgres")
	u.Host = p.Address
	schema := newSchema()
	openIn(t, schema, Options{})
	store := openAt(t, u.String(), Options{Schema: schema})
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1})
	b := s.Next(sessiontest.Acquire(1, 1))
	store.options.replyWithin = 300 * time.Millisecond
	p.SetFault(blackhole)
	for what, call := range map[string]func() error{
		"Open": func() error {
			_, _, err := store.Open(ctx, "a", protocol.Config{Capacity: 1, TTL: sessiontest.TTL}, sessiontest.Opener("i"))
			return err
		},
		"Apply":      func() error { _, err := store.Apply(ctx, "a", b); return err },
		"Inspect":    func() error { _, err := store.Inspect(ctx, "a"); return err },
		"Administer": func() error { return store.Administer(ctx, "a", fleet.Command{Delete: true}) },
		"List":       func() error { _, err := store.List(ctx, protocol.ListQuery{}); return err },
		"Ping":       func() error { _, err := store.Ping(ctx); return err },
		"Examine":    func() error { _, err := store.Examine(ctx); return err },
	} {
		wantUnavailable(t, what, call(), p.Address)
	}
	late, cancel := context.WithTimeout(ctx, time.Hour) // a deadline, but a later one than the store's
	defer cancel()
	_, err := store.Apply(late, "a", b)
	wantUnavailable(t, "Apply within an hour", err, p.Address)
	p.Cut() // otherwise closing the store waits for the connections
}

// TestOpen_TimesOutIfTablesAreLocked opens a store where the connection is established,
// and another transaction has locked a table.
func TestOpen_TimesOutIfTablesAreLocked(t *testing.T) {
	t.Parallel()
	store := openIn(t, newSchema(), Options{})
	schema := store.options.Schema
	tx, err := store.pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, "LOCK TABLE "+schema+".schema_version"); err != nil {
		t.Fatal(err)
	}
	_, err = Open(ctx, pgtest.Shared.Server(t).URL(), Options{Schema: schema, replyWithin: 50 * time.Millisecond})
	wantUnavailable(t, "Open", err, "no reply from postgres")
}

// TestMigrate_FailsIfATransactionIsLeftOpen migrates where a transaction that was left
// open has locked a table. A migration that waited would block all batches behind it.
func TestMigrate_FailsIfATransactionIsLeftOpen(t *testing.T) {
	t.Parallel()
	store := openIn(t, newSchema(), Options{})
	in := store.options.Schema
	tx, err := store.pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "LOCK TABLE "+in+".schema_version"); err != nil {
		t.Fatal(err)
	}
	migrate := func(settings string) error {
		c, err := pgx.Connect(ctx, pgtest.Shared.Server(t).URL()+settings)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(ctx)
		return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error { return migrateSchema(ctx, tx, in) })
	}
	for _, settings := range []string{"", "&lock_timeout=100"} {
		if err := migrate(settings); codeOf(err) != "55P03" {
			t.Errorf("%q: %v, want a lock_timeout", settings, err)
		}
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if err := migrate(""); err != nil {
		t.Error(err)
	}
}

func TestStore_ReportsAReadOnlyDefault(t *testing.T) {
	t.Parallel()
	store := openIn(t, newSchema(), Options{})
	sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1})
	database := pgtest.Shared.Server(t).URL() + "&default_transaction_read_only=on"
	_, err := openAt(t, database, Options{Schema: store.options.Schema}).Inspect(ctx, "a")
	_, ofOpen := Open(ctx, database, Options{Schema: newSchema()})
	for what, err := range map[string]error{"Inspect": err, "Open": ofOpen} {
		wantUnavailable(t, what, err, "default_transaction_read_only is on", "set default_transaction_read_only to off")
		if err != nil && strings.Contains(err.Error(), "standby") {
			t.Errorf("%s: advice for a standby: %v", what, err)
		}
	}
}
