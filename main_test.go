package sema_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The default of 100 checks takes milliseconds; be more thorough, unless
	// the command line says otherwise.
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		flag.Set("rapid.checks", "2000")
	}
	// Nothing in the package starts a goroutine that outlives its cause.
	goleak.VerifyTestMain(m, goleak.Cleanup(os.Exit))
}
