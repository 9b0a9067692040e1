package explain

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/fleet"
)

// closedPort is the error of a store whose port is closed.
type closedPort struct{}

func (closedPort) Error() string { return "connection refused" }
func (closedPort) Unwrap() error { return fleet.FaultConnection }

func TestError_FactsAndHint(t *testing.T) {
	t.Parallel()
	fault := func(err error, change func(*sema.Error)) error {
		e := &sema.Error{Op: "acquire", Name: "db", Weight: 1, Capacity: 2, InUse: 2, Err: err}
		change(e)
		return e
	}
	const holders = "'sema show db' lists the holders"
	for name, c := range map[string]struct {
		err         error
		code        int
		facts, hint string
	}{
		"nothing": {nil, exit.OK, "", ""},
		"a timeout": {fault(sema.ErrTimeout, func(e *sema.Error) { e.Detail = "5s" }), exit.NoPermit,
			`no permit of "db" within 5s: 2 of 2 in use`, holders},
		"a timeout while the store could not decide": {fault(sema.ErrTimeout, func(e *sema.Error) { e.Detail, e.After = "the store has restarted", 1500*time.Millisecond }), exit.NoPermit,
			`no permit of "db" yet: the store has restarted`, "retry after 2s"},
		"an acquire without a wait that the store could not decide": {fault(sema.ErrFull, func(e *sema.Error) { e.Detail = "the store has restarted" }), exit.NoPermit,
			`no permit of "db" yet: the store has restarted`, "retry later"},
		"full":         {fault(sema.ErrFull, func(e *sema.Error) { e.Waiters = 3 }), exit.NoPermit, `no permit of "db" is free: 2 of 2 in use, 3 waiting`, holders},
		"a full queue": {fault(sema.ErrQueueFull, func(e *sema.Error) {}), exit.NoPermit, `the queue of "db" is full: 2 of 2 in use`, "retry later, or allow more waiters: sema set db --max-waiters N"},
		"too large": {fault(sema.ErrTooLarge, func(e *sema.Error) { e.Weight = 3 }), exit.Usage,
			`"db" has a capacity of 2, so 3 permits can never be granted`, "acquire fewer with --weight, or raise the capacity: sema set db --capacity 3"},
		"draining": {fault(sema.ErrDraining, func(e *sema.Error) { e.Name = "a b" }), exit.NoPermit, `"a b" is draining and grants no permits`, "'sema resume 'a b'' ends the draining"},
		"no semaphore": {&sema.Error{Op: "inspect", Name: "db", Err: fs.ErrNotExist}, exit.Failed,
			`no semaphore "db"`, "'sema ls' lists semaphores, 'sema run' creates one"},
		"no file": {&fs.PathError{Op: "open", Path: "/x", Err: fs.ErrNotExist}, exit.Failed, "open /x: file does not exist", ""},
		"no store": {fmt.Errorf("%w: cannot reach redis at h:1: %w", sema.ErrUnavailable, closedPort{}), exit.Unavailable,
			"cannot reach redis at h:1: connection refused", "check that it runs and can be reached; 'sema doctor' examines the store"},
		"no service, with a hint": {fmt.Errorf("%w: cannot reach the sema service at h:1: %w (hint: start it)", sema.ErrUnavailable, closedPort{}), exit.Unavailable,
			"cannot reach the sema service at h:1: connection refused", "start it; 'sema doctor' examines the store"},
		"a store that is loading": {fmt.Errorf("%w: redis at h:1: LOADING", sema.ErrUnavailable), exit.Unavailable,
			"redis at h:1: LOADING", "'sema doctor' examines the store"},
		"a store that fails, and the semaphore again": {fault(sema.ErrUnavailable, func(e *sema.Error) {
			e.Op, e.Detail = "try", `for 1s: semaphore "db": sema: store unavailable: redis at h:1: it is out of memory, see maxmemory`
		}), exit.Unavailable, `no permit of "db" within 1s: redis at h:1: it is out of memory, see maxmemory`, "'sema doctor' examines the store"},
		"a store that does not reply": {fault(sema.ErrUnavailable, func(e *sema.Error) { e.Detail = "for 4s: the store does not reply" }), exit.Unavailable,
			`no permit of "db" within 4s: the store does not reply`, "'sema doctor' examines the store"},
		"a store that does not reply in time": {fmt.Errorf("%w: etcd at h:1 does not reply: %w (hint: check its members)", sema.ErrUnavailable, context.DeadlineExceeded), exit.Unavailable,
			"etcd at h:1 does not reply", "check its members; 'sema doctor' examines the store"},
		"an expired context": {fmt.Errorf("%w: x: %w", sema.ErrUnavailable, context.DeadlineExceeded), exit.Unavailable, "x: no reply in time", "'sema doctor' examines the store"},
		"a lost lease":       {&sema.Error{Op: "renew", Name: "db", Err: sema.ErrLost}, exit.Lost, `"db": renew: lease lost`, sema.Hint(sema.ErrLost)},
		"advice of the library": {&sema.Error{Op: "open", Err: sema.ErrInvalid, Detail: "no", Advice: "set it"}, exit.Usage,
			"open: invalid argument: no", "set it"},
		"wrong usage":               {exit.Misuse("missing NAME").With("write: sema show NAME"), exit.Usage, "missing NAME", "write: sema show NAME"},
		"wrong usage, wrapped":      {fmt.Errorf("sema: flags: %w", exit.Misuse("missing NAME").With("write it")), exit.Usage, "flags: missing NAME", "write it"},
		"a code around a hint":      {&exit.Error{Code: exit.Failed, Err: sema.ErrDraining}, exit.Failed, "draining", sema.Hint(sema.ErrDraining)},
		"the code of a command":     {&exit.Error{Code: 7}, 7, "", ""},
		"an error that was printed": {&exit.Error{Code: exit.Failed, Err: errors.New("2 problems"), Printed: true}, exit.Failed, "", ""},
		"something else":            {errors.New("sema: no space left"), exit.Failed, "no space left", ""},
		"an unsupported operation":  {errors.ErrUnsupported, exit.Usage, "unsupported operation", ""},
		"what the system disallows": {&fs.PathError{Op: "open", Path: "/d/x", Err: fs.ErrPermission}, exit.Denied, "open /d/x: permission denied", "check the owner and the permissions of /d"},
		"a store that the system disallows": {fmt.Errorf("%w: sqlite: %w", sema.ErrUnavailable, &fs.PathError{Op: "open", Path: "/d/x", Err: fs.ErrPermission}), exit.Denied,
			"store unavailable: sqlite: open /d/x: permission denied", "check the owner and the permissions of /d"},
		"what the service denies": {&sema.Error{Op: "drain", Name: "db", Err: fs.ErrPermission}, exit.Denied, `"db": drain: permission denied`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts, hint := Error(c.err)
			if code := exit.Code(c.err); code != c.code || facts != c.facts || hint != c.hint {
				t.Errorf("code %d, %q, hint %q\nwant %d, %q, hint %q", code, facts, hint, c.code, c.facts, c.hint)
			}
		})
	}
}

func TestCause_IsTheReasonAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("semaphore %q: %w: redis at h:1: LOADING", "db", sema.ErrUnavailable), "redis at h:1: LOADING"},
		{fmt.Errorf("%w: cannot reach redis at h:1: %w", sema.ErrUnavailable, closedPort{}), "cannot reach redis at h:1: connection refused"},
		{sema.ErrUnavailable, "it does not reply"},
	} {
		if got := Cause(c.err, "db"); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}
