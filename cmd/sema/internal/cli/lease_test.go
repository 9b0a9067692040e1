package cli

import (
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// TestWanting_Request checks that an absent wait means no bound.
func TestWanting_Request(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flags     []string
		wait      time.Duration
		unbounded bool
	}{
		{nil, 0, true},
		{[]string{"--wait", "5m"}, 5 * time.Minute, false},
		{[]string{"--wait", "0s"}, 0, false},
		{[]string{"--no-wait"}, 0, false},
	} {
		var want wanting
		command := &cobra.Command{}
		want.flags(command)
		if err := command.ParseFlags(c.flags); err != nil {
			t.Fatal(err)
		}
		if err := want.check(command); err != nil {
			t.Fatal(err)
		}
		if r := want.request("db", "about"); r.Wait != c.wait || r.Unbounded != c.unbounded {
			t.Errorf("%v: wait %v, unbounded %t; want %v, %t", c.flags, r.Wait, r.Unbounded, c.wait, c.unbounded)
		}
	}
}
