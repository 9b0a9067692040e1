//go:build linux

package host_test

import (
	"bytes"
	"context"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host"
	"github.com/sema-go/sema/internal/seal"
)

// TestOption_Types checks by assignability which options compile.
func TestOption_Types(t *testing.T) {
	t.Parallel()
	option, root := reflect.TypeFor[host.Option](), reflect.TypeFor[sema.Option]()
	for about, c := range map[string]struct {
		value, parameter reflect.Type
		compiles         bool
	}{
		"host.Open(…, sema.MaxWait(…))":        {reflect.TypeOf(sema.MaxWait).Out(0), option, true},
		"host.Open(…, sema.CallSites)":         {reflect.TypeOf(sema.CallSites), option, true},
		"host.Open(…, host.Dir(…))":            {reflect.TypeOf(host.Dir).Out(0), option, true},
		"host.Open(…, sema.LIFO)":              {reflect.TypeOf(sema.LIFO), option, false},
		"host.Open(…, sema.ParkOversize)":      {reflect.TypeOf(sema.ParkOversize), option, false},
		"host.Open(…, sema.Backed(…))":         {reflect.TypeOf(sema.Backed).Out(0), option, false},
		"sema.New(…, host.Dir(…))":             {reflect.TypeOf(host.Dir).Out(0), root, false},
		"sema.New(…, host.ShareWithGroup(…))":  {reflect.TypeOf(host.ShareWithGroup).Out(0), root, false},
		"sema.NewMonitor(…, host.Dir(…))":      {reflect.TypeOf(host.Dir).Out(0), reflect.TypeFor[sema.SharedOption](), false},
		"host.Open(…, a SharedOption of root)": {reflect.TypeFor[sema.SharedOption](), option, true},
	} {
		if got := c.value.AssignableTo(c.parameter); got != c.compiles {
			t.Errorf("%s compiles: %v, want %v", about, got, c.compiles)
		}
	}
}

// A foreignOption stands for an option of another scope, which compiles.
type foreignOption struct{}

func (foreignOption) SharedOption(seal.Key) {}

func TestOpen_RejectsOptionsOfOtherScopes(t *testing.T) {
	t.Parallel()
	dir := host.Dir(t.TempDir())
	for _, opt := range []host.Option{foreignOption{}, nil} {
		_, err := host.Open("a", 1, dir, opt)
		wantErr(t, err, sema.ErrInvalid)
		if sema.Hint(err) == "" {
			t.Errorf("%v has no hint", err)
		}
		_, err = host.List(dir, opt)
		wantErr(t, err, sema.ErrInvalid)
	}
}

func TestOpen_SharedOptions(t *testing.T) {
	t.Parallel()
	sem, _, _ := open(t, 1, sema.Name("label"), sema.MaxWait(time.Minute), sema.MaxWaiters(3), sema.Diagnose(sema.DiagnoseOff),
		sema.WarnHold(time.Hour), sema.ReclaimLeaks, sema.CallSites, sema.Observe(sema.ObserverFunc(func(sema.Event) {})))
	if sem.Name() != "label" {
		t.Errorf("name %q, want %q", sem.Name(), "label")
	}
	_, err := sem.TryAcquire(context.Background(), 2)
	wantErr(t, err, sema.ErrTooLarge)
	if !strings.Contains(err.Error(), `"label"`) {
		t.Error(err)
	}
	if info, err := sem.Inspect(context.Background()); err != nil || info.MaxWaiters != 3 || info.Name == "label" {
		t.Errorf("%+v %v", info, err)
	}
}

// TestOpen_LogsAMismatchOnce is not parallel, because it replaces the default logger of
// the process.
func TestOpen_LogsAMismatchOnce(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	_, dir, name := open(t, 2)
	for range 3 {
		openIn(t, dir, name, 3)
		openIn(t, dir, name, 2)
	}
	if n := strings.Count(log.String(), "capacity 2, not 3"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
}
