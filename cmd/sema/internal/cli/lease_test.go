package cli

import (
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/flags"
)

// TestRequestFor_Waits checks that an absent wait means no bound.
func TestRequestFor_Waits(t *testing.T) {
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
		var want flags.Permits
		set := pflag.NewFlagSet("acquire", pflag.ContinueOnError)
		want.Add(set)
		if err := set.Parse(c.flags); err != nil {
			t.Fatal(err)
		}
		if err := want.Check(set); err != nil {
			t.Fatal(err)
		}
		if r := requestFor("db", "about", want); r.Wait != c.wait || r.Unbounded != c.unbounded {
			t.Errorf("%v: wait %v, unbounded %t; want %v, %t", c.flags, r.Wait, r.Unbounded, c.wait, c.unbounded)
		}
	}
}

// TestPermits_SlotsAndWeight checks the hint of flags that exclude each other.
func TestPermits_SlotsAndWeight(t *testing.T) {
	t.Parallel()
	for slots, hint := range map[string]string{"1": "--slots 1 acquires 1 numbered permit", "2": "--slots 2 acquires 2 numbered permits"} {
		var want flags.Permits
		set := pflag.NewFlagSet("acquire", pflag.ContinueOnError)
		want.Add(set)
		if err := set.Parse([]string{"--slots", slots, "--weight", "2"}); err != nil {
			t.Fatal(err)
		}
		if err := want.Check(set); sema.Hint(err) != hint {
			t.Errorf("%v: hint %q, want %q", err, sema.Hint(err), hint)
		}
	}
}
