package pgstore

import (
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
)

func TestUsage_HasFindings(t *testing.T) {
	t.Parallel()
	well := usage{release: "15.8", number: 150008, connections: 10, max: 97}
	for _, c := range []struct {
		change func(*usage)
		find   func(usage) fleet.Finding
		level  fleet.Level
		text   string
	}{
		{func(*usage) {}, usage.versionFinding, fleet.LevelOK, "PostgreSQL 15.8"},
		{func(u *usage) { u.number = 120017 }, usage.versionFinding, fleet.LevelProblem, "upgrade it to 13"},
		{func(*usage) {}, usage.connectionsFinding, fleet.LevelOK, "10 of 97"},
		{func(u *usage) { u.connections = 90 }, usage.connectionsFinding, fleet.LevelWarning, "max_connections"},
		{func(*usage) {}, usage.transactionsFinding, fleet.LevelOK, "none is left open"},
		{func(u *usage) { u.oldest = 90 * time.Second }, usage.transactionsFinding, fleet.LevelWarning, "one has been idle for 1m30s"},
	} {
		u := well
		c.change(&u)
		if f := c.find(u); f.Level != c.level || !strings.Contains(f.String(), c.text) {
			t.Errorf("%+v: %+v, want %s %q", u, f, c.level, c.text)
		}
	}
}

func TestUsage_ReportsOpenTransactions(t *testing.T) {
	t.Parallel()
	s := openIn(t, newSchema(), Options{})
	c, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	other, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Release()
	if _, err := other.Exec(t.Context(), "BEGIN"); err != nil {
		t.Fatal(err)
	}
	defer other.Exec(t.Context(), "ROLLBACK")
	u, err := queryUsage(t.Context(), c.Conn())
	if err != nil || u.oldest <= 0 || u.pooled || u.connections < 2 || u.max < u.connections || u.number < 130000 {
		t.Errorf("%+v, %v", u, err)
	}
}
