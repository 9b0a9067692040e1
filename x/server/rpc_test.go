package server_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	_ "github.com/sema-go/sema/x/remotestore"
	"github.com/sema-go/sema/x/semav1"
	"github.com/sema-go/sema/x/semav1/semav1connect"
	"github.com/sema-go/sema/x/server"
)

// dial opens a Go client of the service.
func (s *site) dial(query string) *fleet.Client {
	s.t.Helper()
	c, err := fleet.Open(s.t.Context(), strings.Replace(s.url, "http:", "sema:", 1)+query)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close(context.Background(), fleet.CloseAbandon) })
	return c
}

// TestRemoteStore_GoClient checks that Go programs and HTTP clients share semaphores.
func TestRemoteStore_GoClient(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Declared: []server.Declaration{{Name: "db", Capacity: 2}}})
	db, err := s.dial("").Semaphore("db", 100)
	if err != nil {
		t.Fatal(err)
	}
	p, err := db.Acquire(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if a := s.want(200, "GET", "/v1/semaphores/db", ""); a.body["capacity"] != 2.0 || a.body["in_use"] != 1.0 {
		t.Errorf("%v: want the declared capacity", a.body)
	}
	s.want(201, "POST", "/v1/semaphores/db/leases", "")
	if _, err := db.TryAcquire(t.Context(), 1); !errors.Is(err, sema.ErrFull) {
		t.Errorf("%v", err)
	}
	if err := fleet.Release(t.Context(), p); err != nil {
		t.Error(err)
	}
	s.want(201, "POST", "/v1/semaphores/db/leases", "")
}

func TestRemoteStore_Tokens(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Tokens: []server.Token{
		{Name: "jobs", Hash: server.HashToken("secret-1"), Prefix: "job-", Verbs: []server.Verb{server.Acquire, server.Read}},
	}})
	if _, err := fleet.Open(t.Context(), strings.Replace(s.url, "http:", "sema:", 1)); !errors.Is(err, fs.ErrPermission) || !errors.Is(err, fleet.FaultAccess) {
		t.Errorf("opened without a token: %v", err)
	}
	if _, err := s.dial("?open=lazy").Info(t.Context(), "job-1"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("without a token: %v", err)
	}
	jobs := s.dial("?token=secret-1")
	job, err := jobs.Semaphore("job-1", 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := job.Acquire(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	_, others := jobs.Info(t.Context(), "db")
	for facts, err := range map[string]error{
		`token "jobs" may not use "db"; its verbs are acquire, read, on names with the prefix "job-"`:                others,
		`token "jobs" lacks the verb admin on "job-1"; its verbs are acquire, read, on names with the prefix "job-"`: jobs.Resume(t.Context(), "job-1"),
	} {
		if !errors.Is(err, fs.ErrPermission) || !errors.Is(err, fleet.FaultAccess) || errors.Is(err, sema.ErrUnavailable) || !strings.HasSuffix(err.Error(), "not allowed: "+facts) {
			t.Errorf("%v, want %s", err, facts)
		}
		if hint := sema.Hint(err); !strings.HasPrefix(hint, "ask the operator of the service for a token that allows this") {
			t.Errorf("%v: hint %q", err, hint)
		}
	}
	if names, err := jobs.List(t.Context(), ""); err != nil || fmt.Sprint(names) != "[job-1]" {
		t.Errorf("%v, %v", names, err)
	}
	if strings.Contains(s.log.String(), "secret") {
		t.Error("the token is in the log")
	}
}

// TestRPC_AllProcedures checks all procedures for other languages, by Connect and gRPC.
func TestRPC_AllProcedures(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]connect.ClientOption{"Connect": connect.WithProtoJSON(), "gRPC-Web": connect.WithGRPCWeb()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, server.Options{})
			verbs(t, semav1connect.NewSemaServiceClient(s.http.Client(), s.url, option))
		})
	}
}

func verbs(t *testing.T, c semav1connect.SemaServiceClient) {
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(err error, code connect.Code) {
		t.Helper()
		if connect.CodeOf(err) != code {
			t.Fatalf("%v, want %v", err, code)
		}
	}
	capacity := int64(1)
	ask := &semav1.AcquireRequest{Semaphore: "db", Holder: "cobol", Settings: &semav1.Settings{Capacity: &capacity}}
	_, err := c.Acquire(ctx, &semav1.AcquireRequest{Semaphore: "db"})
	want(err, connect.CodeNotFound)
	a, err := c.Acquire(ctx, ask)
	must(err)
	if a.Lease.Fence.GetSeq() == 0 || a.Lease.TtlMs != 15_000 || a.Lease.ValidForMs < 5_000 || a.Lease.ValidForMs > 10_000 || a.Lease.Lease != a.Lease.Fence.Seq {
		t.Errorf("%v", a.Lease)
	}
	_, err = c.Acquire(ctx, ask)
	want(err, connect.CodeResourceExhausted)
	_, err = c.Renew(ctx, &semav1.RenewRequest{Semaphore: "db", Id: a.Lease.Id})
	must(err)
	seen, err := c.Info(ctx, &semav1.InfoRequest{Semaphore: "db"})
	must(err)
	if len(seen.Holders) != 1 || seen.Holders[0].Holder != "cobol" || seen.Semaphore.InUse != 1 {
		t.Errorf("%v", seen)
	}
	_, err = c.Release(ctx, &semav1.ReleaseRequest{Semaphore: "db", Id: a.Lease.Id})
	must(err)
	_, err = c.Renew(ctx, &semav1.RenewRequest{Semaphore: "db", Id: a.Lease.Id})
	want(err, connect.CodeFailedPrecondition)

	two := int64(2)
	changed, err := c.Configure(ctx, &semav1.ConfigureRequest{Semaphore: "db", Settings: &semav1.Settings{Capacity: &two}})
	must(err)
	_, err = c.Configure(ctx, &semav1.ConfigureRequest{Semaphore: "db", Settings: &semav1.Settings{Capacity: &two}, Version: changed.Semaphore.Version - 1})
	want(err, connect.CodeAborted)
	list, err := c.List(ctx, &semav1.ListRequest{})
	must(err)
	if len(list.Semaphores) != 1 || list.Semaphores[0].Capacity != 2 {
		t.Errorf("%v", list)
	}

	stream, err := c.Hold(ctx, &semav1.HoldRequest{Acquire: ask})
	must(err)
	if !stream.Receive() || stream.Msg().GetHeld() == nil {
		t.Fatalf("%v, %v", stream.Msg(), stream.Err())
	}
	_, err = c.Revoke(ctx, &semav1.RevokeRequest{Semaphore: "db", Lease: stream.Msg().GetHeld().Lease, Why: "enough", AtOnce: true})
	must(err)
	must(stream.Close())
	drained, err := c.Drain(ctx, &semav1.DrainRequest{Semaphore: "db", WaitMs: 100})
	must(err)
	if drained.Semaphore.InUse != 0 || !drained.Semaphore.Draining {
		t.Errorf("%v", drained)
	}
	_, err = c.Acquire(ctx, ask)
	want(err, connect.CodeUnavailable)
	_, err = c.Resume(ctx, &semav1.ResumeRequest{Semaphore: "db"})
	must(err)

	waiting := &semav1.AcquireRequest{Semaphore: "db", WaitMs: 100}
	b, err := c.Batch(ctx, &semav1.BatchRequest{Requests: []*semav1.BatchItem{
		{Request: &semav1.BatchItem_Acquire{Acquire: ask}}, {Request: &semav1.BatchItem_Release{Release: &semav1.ReleaseRequest{Semaphore: "db", Id: "nonsense"}}},
		{Request: &semav1.BatchItem_Acquire{Acquire: waiting}},
	}})
	must(err)
	if b.Results[0].GetLease() == nil || b.Results[2].GetLease() == nil || b.Results[1].GetFailure().GetCode() != "invalid_argument" {
		t.Errorf("%v", b.Results)
	}
	watching, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	watch, err := c.Watch(watching, &semav1.WatchRequest{Semaphore: "db"})
	must(err)
	if !watch.Receive() || watch.Msg().GetInfo().GetSemaphore().GetInUse() != 2 {
		t.Errorf("%v, %v", watch.Msg(), watch.Err())
	}
	stop()
	_ = watch.Close()
	_, err = c.Delete(ctx, &semav1.DeleteRequest{Semaphore: "db"})
	must(err)
	_, err = c.Info(ctx, &semav1.InfoRequest{Semaphore: "db"})
	want(err, connect.CodeNotFound)
}
