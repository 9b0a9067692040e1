package pgstore

import (
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
)

func TestHowAServerIsUsed(t *testing.T) {
	t.Parallel()
	well := use{release: "15.8", number: 150008, connections: 10, max: 97}
	for _, c := range []struct {
		change func(*use)
		find   func(use) fleet.Finding
		level  fleet.Level
		text   string
	}{
		{func(*use) {}, use.version, fleet.LevelOK, "PostgreSQL 15.8"},
		{func(u *use) { u.number = 120017 }, use.version, fleet.LevelProblem, "upgrade it to 13"},
		{func(*use) {}, use.room, fleet.LevelOK, "10 of 97"},
		{func(u *use) { u.connections = 90 }, use.room, fleet.LevelWarning, "max_connections"},
		{func(*use) {}, use.idle, fleet.LevelOK, "none is left open"},
		{func(u *use) { u.oldest = 90 * time.Second }, use.idle, fleet.LevelWarning, "one has been idle for 1m30s"},
	} {
		u := well
		c.change(&u)
		if f := c.find(u); f.Level != c.level || !strings.Contains(f.String(), c.text) {
			t.Errorf("%+v: %+v, want %s %q", u, f, c.level, c.text)
		}
	}
}

func TestATransactionThatIsLeftOpenIsNoticed(t *testing.T) {
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
	u, err := askUse(t.Context(), c.Conn())
	if err != nil || u.oldest <= 0 || u.pooled || u.connections < 2 || u.max < u.connections || u.number < 130000 {
		t.Errorf("%+v, %v", u, err)
	}
}
