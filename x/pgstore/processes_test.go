package pgstore

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/internal/enginetest/pgtest"
	"github.com/sema-go/sema/internal/proctest"
	"github.com/sema-go/sema/internal/sessiontest"
)

// visitTable is a process that visits a room in the database, again and again,
// and says how many were in at a time at most.
func visitTable(c *proctest.Child) {
	url, schema := c.Args[0], c.Args[1]
	store, err := Open(ctx, url, Options{Schema: schema})
	c.Must(err)
	client := fleet.New(store)
	s, err := client.Semaphore("room", 3, fleet.TTL(2*time.Second))
	c.Must(err)
	c.Say("ready")
	c.Hear()
	most := make(chan int)
	for range 4 {
		go func() {
			highest := 0
			for end := time.Now().Add(4 * time.Second); time.Now().Before(end); {
				p, err := s.Acquire(ctx, 1)
				c.Must(err)
				var in int
				c.Must(store.pool.QueryRow(ctx, "UPDATE "+schema+".room SET n = n + 1 RETURNING n").Scan(&in))
				highest = max(highest, in)
				_, err = store.pool.Exec(ctx, "UPDATE "+schema+".room SET n = n - 1, visits = visits + 1")
				c.Must(err)
				p.Release()
			}
			most <- highest
		}()
	}
	highest := 0
	for range 4 {
		highest = max(highest, <-most)
	}
	c.Must(client.Close(ctx))
	c.Say("%d", highest)
}

// holdUntilKilled is a process that dies with all permits.
func holdUntilKilled(c *proctest.Child) {
	store, err := Open(ctx, c.Args[0], Options{Schema: c.Args[1]})
	c.Must(err)
	s, err := fleet.New(store).Semaphore("room", 3, fleet.TTL(2*time.Second))
	c.Must(err)
	_, err = s.Acquire(ctx, 3)
	c.Must(err)
	c.Say("held")
	select {}
}

func TestProcessesShareASemaphore(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared.Server(t).URL()
	store := openIn(t, newSchema(), Options{})
	schema := store.options.Schema
	exec(t, store, "CREATE TABLE "+schema+".room (n int, visits int)")
	exec(t, store, "INSERT INTO "+schema+".room VALUES (0, 0)")

	victim := proctest.Start(t, "victim", url, schema)
	victim.Expect("held")
	var visitors []*proctest.Process
	for range 3 {
		visitors = append(visitors, proctest.Start(t, "visitor", url, schema))
	}
	for _, v := range visitors {
		v.Expect("ready")
	}
	for _, v := range visitors {
		v.Say("go")
	}
	time.Sleep(300 * time.Millisecond)
	if n := count(t, store, "SELECT visits FROM "+schema+".room"); n != 0 {
		t.Errorf("%d visits while all permits are held", n)
	}
	victim.End() // with SIGKILL
	for i, v := range visitors {
		most, err := strconv.Atoi(v.Hear())
		if err != nil || most > 3 {
			t.Errorf("process %d saw %d in the room, want at most 3 (%v)", i, most, err)
		}
	}
	if n := count(t, store, "SELECT visits FROM "+schema+".room"); n < 20 {
		t.Errorf("only %d visits", n)
	}
	waitFor(t, func() bool {
		leases, line := sessiontest.Held(t, store, "room")
		return len(leases)+len(line) == 0
	})
	if err := checkSums(store); err != nil {
		t.Error(fmt.Errorf("in the end: %w", err))
	}
}
