package pgstore

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/sema-go/sema/fleet"
)

// init discards the warnings about servers without fsync, on which tests open stores.
func init() { slog.SetDefault(slog.New(slog.DiscardHandler)) }

func TestDurability_ReportsProblems(t *testing.T) {
	t.Parallel()
	safe := durability{fsync: "on", commit: "on"}
	for _, c := range []struct {
		change func(*durability)
		want   []string
	}{
		{func(*durability) {}, nil},
		{func(d *durability) { d.names = "a" }, nil},
		{func(d *durability) { d.standby = true }, []string{"it is a standby"}},
		{func(d *durability) { d.readOnly = true }, []string{"default_transaction_read_only is on"}},
		{func(d *durability) { d.fsync = "off" }, []string{"fsync is off"}},
		{func(d *durability) { d.commit = "off" }, []string{"a crash loses the last commits"}},
		{func(d *durability) { d.standbys = 1 }, []string{"it has 1 standbys and waits for none of them"}},
		{func(d *durability) { d.standbys, d.names = 1, "*" }, nil},
		{func(d *durability) { d.standbys, d.names, d.commit = 1, "*", "remote_apply" }, nil},
		{func(d *durability) { d.standbys, d.names, d.commit = 1, "*", "remote_write" }, []string{"waits for none of them (synchronous_commit is remote_write"}},
		{func(d *durability) { d.standbys, d.names, d.commit = 1, "*", "local" }, []string{"waits for none of them"}},
		{func(d *durability) { d.standbys, d.names, d.commit = 1, "*", "off" }, []string{"last commits", "waits for none of them"}},
		{func(d *durability) { d.standbys, d.names = 2, "a, b" }, []string{"it has 2 standbys and waits for 1 of them"}},
		{func(d *durability) { d.standbys, d.names = 3, "ANY 2 (a, b, c)" }, []string{"waits for 2 of them"}},
		{func(d *durability) { d.standbys, d.names = 2, "FIRST 2 (a, b)" }, nil},
		{func(d *durability) { d.standbys, d.names = 2, "2(a, b)" }, nil},
	} {
		d := safe
		c.change(&d)
		wantTexts(t, fleet.Problems("here", d.findings()), c.want...)
	}
}

func wantTexts(t *testing.T, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%q, want %q", got, want)
		return
	}
	for i, text := range want {
		if !strings.Contains(got[i], text) {
			t.Errorf("%q, want %q", got[i], text)
		}
	}
}

// TestOpen_LogsWarnings opens stores as a superuser and as a role that may not read all
// statistics.
func TestOpen_LogsWarnings(t *testing.T) {
	t.Parallel()
	primary, standby := startPair(t)
	mustPsql(t, primary, "CREATE ROLE limited LOGIN; GRANT USAGE ON SCHEMA sema TO limited; GRANT SELECT ON ALL TABLES IN SCHEMA sema TO limited")
	examined := func(database string) []string {
		var log bytes.Buffer
		s := openAt(t, database, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for _, text := range s.Warnings() {
			if !strings.Contains(log.String(), "sema: "+text[:40]) || !strings.Contains(text, s.address) {
				t.Errorf("%q is not in the log: %s", text, &log)
			}
		}
		return s.Warnings()
	}
	for _, user := range []string{"postgres", "limited"} {
		wantTexts(t, examined(primary.URLOf(user, "postgres").String()), "fsync is off", "it has 1 standbys and waits for none of them")
		wantTexts(t, examined(primary.URLOf(user, "postgres").String()+"&default_transaction_read_only=on"), "default_transaction_read_only", "fsync", "waits for none")
	}
	wantTexts(t, examined(standby.URL()), "it is a standby")
	set(t, primary, "synchronous_standby_names", "*")
	wantTexts(t, examined(primary.URL()), "fsync is off")
	wantTexts(t, examined(primary.URL()+"&synchronous_commit=local"), "fsync is off", "waits for none of them")
}
