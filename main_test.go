package sema_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The default of 100 checks takes milliseconds. Run more, unless the command line
	// sets the number.
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		flag.Set("rapid.checks", "2000")
	}
	// No goroutine that the package starts outlives its cause.
	goleak.VerifyTestMain(m, goleak.Cleanup(os.Exit))
}
