package bubble

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestInTest_RecognisesTestBinaries(t *testing.T) {
	for _, args := range [][]string{
		{"/tmp/go-build1/b001/sema.test"}, {`C:\b001\sema.test.exe`}, {"debug", "-test.v"}, {"debug", "--test.run=X"}, nil,
	} {
		if !isTestBinary(args) {
			t.Errorf("%q is a test binary", args)
		}
	}
	for _, args := range [][]string{{"server"}, {"/usr/bin/test", "-v", "latest.txt"}} {
		if isTestBinary(args) {
			t.Errorf("%q is not a test binary", args)
		}
	}
	if !inTest() {
		t.Error("this is a test binary")
	}
}

func TestInside_OnlyInBubbles(t *testing.T) {
	if Inside() {
		t.Error("outside of a bubble")
	}
	synctest.Test(t, func(t *testing.T) {
		for range 3 {
			if !Inside() {
				t.Errorf("not recognised at %v", time.Now())
			}
			time.Sleep(25 * 365 * 24 * time.Hour)
		}
	})
	if Inside() {
		t.Error("after a bubble")
	}
}
