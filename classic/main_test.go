package classic_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		flag.Set("rapid.checks", "500")
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(os.Exit)) // no wait starts a goroutine
}
