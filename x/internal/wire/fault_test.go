package wire_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/internal/wire"
	"github.com/sema-go/sema/x/semav1"
	"github.com/sema-go/sema/x/semav1/semav1connect"
)

// A failing service replies to List with an error.
type failing struct {
	semav1connect.UnimplementedStoreServiceHandler
	with error
}

func (f *failing) List(context.Context, *semav1.StoreListRequest) (*semav1.StoreListResponse, error) {
	return nil, wire.FaultOf(f.with)
}

var all = []error{
	fs.ErrNotExist, protocol.ErrConflict, protocol.ErrVersion, sema.ErrInvalid, errors.ErrUnsupported, fs.ErrPermission, sema.ErrQueueFull, sema.ErrFull,
	sema.ErrTimeout, sema.ErrTooLarge, sema.ErrLost, sema.ErrDraining, sema.ErrClosed, sema.ErrUnavailable, context.DeadlineExceeded, context.Canceled,
}

// TestFault_RoundTrip checks that errors keep their texts and sentinels over each of the
// three protocols.
func TestFault_RoundTrip(t *testing.T) {
	t.Parallel()
	f := &failing{}
	mux := http.NewServeMux()
	mux.Handle(semav1connect.NewStoreServiceHandler(f))
	server := httptest.NewUnstartedServer(mux)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	for _, by := range []connect.ClientOption{connect.WithClientOptions(), connect.WithGRPC(), connect.WithGRPCWeb()} {
		client := semav1connect.NewStoreServiceClient(server.Client(), server.URL, by)
		for _, with := range slices.Concat(all, []error{
			errors.New("another"), fmt.Errorf("two: %w, %w", protocol.ErrConflict, sema.ErrUnavailable),
		}) {
			f.with = fmt.Errorf("semaphore %q: %w; try ü\n%%", "a", with)
			_, err := client.List(t.Context(), &semav1.StoreListRequest{})
			fault, ok := wire.ReadFault(err)
			if !ok {
				t.Fatalf("%v was received as %v", with, err)
			}
			if fault.Error() != f.with.Error() {
				t.Errorf("%q was received as %q", f.with, fault)
			}
			for _, sentinel := range all {
				if errors.Is(fault, sentinel) != errors.Is(f.with, sentinel) {
					t.Errorf("%q was received: is %q: %t, want %t", f.with, sentinel, errors.Is(fault, sentinel), errors.Is(f.with, sentinel))
				}
			}
		}
	}
}

func TestReadFault_IgnoresOtherErrors(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"code":"not_found","message":"no such page"}`)
	}))
	t.Cleanup(server.Close)
	_, err := semav1connect.NewStoreServiceClient(server.Client(), server.URL).List(t.Context(), &semav1.StoreListRequest{})
	if err == nil || !strings.Contains(err.Error(), "no such page") {
		t.Fatal(err)
	}
	if fault, ok := wire.ReadFault(err); ok || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v was read as %v", err, fault)
	}
	coded := connect.NewError(connect.CodeAborted, protocol.ErrConflict)
	if got := wire.FaultOf(coded); got != error(coded) {
		t.Errorf("an error with a code became %v", got)
	}
	if wire.FaultOf(nil) != nil {
		t.Error("FaultOf(nil) is not nil")
	}
}
