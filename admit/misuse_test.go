package admit_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/wfq"
)

func TestAdapters_PanicAtOnceIfSomethingIsMissing(t *testing.T) {
	t.Parallel()
	// Not at the first request, and not with a nil dereference without a reason.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, make := range map[string]func(){
		"Handler without a controller":   func() { admit.HTTP{}.Handler(http.NotFoundHandler()) },
		"Handler without a handler":      func() { admit.HTTP{Controller: admit.New(admit.Config{})}.Handler(nil) },
		"Transport without a controller": func() { admit.HTTP{}.Transport(nil) },
		"Listener without a gate":        func() { admit.Listener(l, nil) },
		"Listener without a listener":    func() { admit.Listener(nil, wfq.New(1)) },
		"Adapt without a limit":          func() { admit.Adapt(wfq.New(1), nil) },
		"Handler with a negative bound": func() {
			admit.HTTP{Controller: admit.New(admit.Config{}), SlowClient: -1}.Handler(http.NotFoundHandler())
		},
	} {
		func() {
			defer func() {
				if why, _ := recover().(string); !strings.HasPrefix(why, "admit: ") {
					t.Errorf("%s: no panic with a reason", name)
				}
			}()
			make()
		}()
	}
}

// A flakyTarget is a gate of a store that is away at first.
type flakyTarget struct {
	fails atomic.Int64
	limit atomic.Int64
}

func (f *flakyTarget) Resize(_ context.Context, n int64) error {
	if f.fails.Add(-1) >= 0 {
		return errors.New("away")
	}
	f.limit.Store(n)
	return nil
}

// twenty is a limit that stays.
type twenty struct{}

func (twenty) Next(admit.Window) int64 { return 20 }

func TestAdapter_RepeatsAResizeThatFailed(t *testing.T) {
	t.Parallel()
	// Also if the limit does not change any more: the gate would keep the old one for ever, and
	// the statistics would show the new one.
	synctest.Test(t, func(t *testing.T) {
		target := new(flakyTarget)
		target.fails.Store(2)
		a := admit.Adapt(target, twenty{})
		for range 100 {
			a.Sample(admit.OK, time.Millisecond)
			time.Sleep(20 * time.Millisecond)
		}
		synctest.Wait()
		if got := target.limit.Load(); got != 20 || a.Limit() != 20 {
			t.Errorf("the gate has the limit %d, the adapter %d", got, a.Limit())
		}
	})
}
