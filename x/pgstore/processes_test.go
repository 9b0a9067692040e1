package pgstore

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/internal/proctest"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest/pgtest"
)

// enterCountedSection runs in a child process. It enters a critical section that is counted
// in a table, again and again, and sends the highest number of concurrent entries that it
// saw.
func enterCountedSection(c *proctest.Child) {
	url, schema := c.Args[0], c.Args[1]
	store, err := Open(ctx, url, Options{Schema: schema})
	c.Must(err)
	client := fleet.New(store)
	s, err := client.Semaphore("section", 3, fleet.TTL(2*time.Second))
	c.Must(err)
	c.Send("ready")
	c.Receive()
	most := make(chan int)
	for range 4 {
		go func() {
			highest := 0
			// At least 4 entries, however slow the machine is.
			end := time.Now().Add(4 * time.Second)
			for entries := 0; entries < 4 || time.Now().Before(end); entries++ {
				p, err := s.Acquire(ctx, 1)
				c.Must(err)
				var in int
				c.Must(store.pool.QueryRow(ctx, "UPDATE "+schema+".section SET n = n + 1 RETURNING n").Scan(&in))
				highest = max(highest, in)
				_, err = store.pool.Exec(ctx, "UPDATE "+schema+".section SET n = n - 1, entries = entries + 1")
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
	c.Send("%d", highest)
}

// holdUntilKilled runs in a child process, which is killed while it holds all permits.
func holdUntilKilled(c *proctest.Child) {
	store, err := Open(ctx, c.Args[0], Options{Schema: c.Args[1]})
	c.Must(err)
	s, err := fleet.New(store).Semaphore("section", 3, fleet.TTL(2*time.Second))
	c.Must(err)
	_, err = s.Acquire(ctx, 3)
	c.Must(err)
	c.Send("held")
	select {}
}

func TestStore_IsSharedByProcesses(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared.Server(t).URL()
	store := openIn(t, newSchema(), Options{})
	schema := store.options.Schema
	exec(t, store, "CREATE TABLE "+schema+".section (n int, entries int)")
	exec(t, store, "INSERT INTO "+schema+".section VALUES (0, 0)")

	holder := proctest.Start(t, "holder", url, schema)
	holder.Expect("held")
	var contenders []*proctest.Process
	for range 3 {
		contenders = append(contenders, proctest.Start(t, "contender", url, schema))
	}
	for _, v := range contenders {
		v.Expect("ready")
	}
	for _, v := range contenders {
		v.Send("go")
	}
	time.Sleep(300 * time.Millisecond)
	if n := count(t, store, "SELECT entries FROM "+schema+".section"); n != 0 {
		t.Errorf("%d entries while all permits are held", n)
	}
	holder.End() // with SIGKILL
	for i, v := range contenders {
		most, err := strconv.Atoi(v.Receive())
		if err != nil || most > 3 {
			t.Errorf("process %d saw %d in the section, want at most 3 (%v)", i, most, err)
		}
	}
	if n := count(t, store, "SELECT entries FROM "+schema+".section"); n < 3*4*4 {
		t.Errorf("only %d entries", n)
	}
	waitFor(t, func() bool {
		leases, queue := sessiontest.Held(t, store, "section")
		return len(leases)+len(queue) == 0
	})
	if err := checkSums(store); err != nil {
		t.Error(fmt.Errorf("in the end: %w", err))
	}
}
