package cli

import (
	"testing"
	"time"

	"github.com/sema-go/sema"
)

// TestVerdict_ReasonOfNoPermit: the detail of a timeout is how long it waited, or why
// the store could not decide.
func TestVerdict_ReasonOfNoPermit(t *testing.T) {
	t.Parallel()
	fault := sema.Error{Op: "acquire", Name: "db", Weight: 1, Capacity: 2, InUse: 2, Err: sema.ErrTimeout}
	waited, restarted := fault, fault
	waited.Detail = (5 * time.Second).String()
	restarted.Detail, restarted.InUse, restarted.After = "the store has restarted", 0, 1500*time.Millisecond
	full, tried := fault, fault
	full.Err = sema.ErrFull
	tried.Err, tried.Detail = sema.ErrFull, restarted.Detail
	for want, err := range map[string]sema.Error{
		`no permit of "db" within 5s: 2 of 2 are in use; 'sema show db' says by whom`: waited,
		`no permit of "db" yet: the store has restarted; try again after 2s`:          restarted,
		`no permit of "db" yet: the store has restarted`:                              tried,
		`no permit of "db" is free: 2 of 2 are in use; 'sema show db' says by whom`:   full,
	} {
		if code, got := status(&err); code != codeNotObtained || got != want {
			t.Errorf("%d, %s\nwant %s", code, got, want)
		}
	}
}
