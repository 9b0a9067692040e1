package storerpc

import (
	"context"
	"errors"
	"fmt"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/internal/wire"
	"github.com/sema-go/sema/x/semav1"
	"github.com/sema-go/sema/x/semav1/semav1connect"
)

// A service implements the StoreService of sema.v1.
type service struct {
	store   fleet.Store
	handler *Handler
}

// Open implements [semav1connect.StoreServiceHandler].
func (s *service) Open(ctx context.Context, m *semav1.StoreOpenRequest) (*semav1.StoreOpenResponse, error) {
	client := m.GetClient()
	for _, text := range [][]byte{client.GetInstance(), client.GetKind(), client.GetHost()} {
		if err := check("open", m.Name, text); err != nil {
			return nil, wire.FaultOf(err)
		}
		if err := fleet.CheckMeta(string(text)); err != nil { // the text is printed to terminals
			return nil, wire.FaultOf(invalid("open", m.Name, "instance, kind or host of the client: "+err.Error()))
		}
	}
	by := protocol.Opener{Client: wire.ReadClient(client), Highest: protocol.Seq(m.Highest), MustExist: m.MustExist}
	if copy(by.Owner.Key[:], m.Key); len(m.Key) != len(by.Owner.Key) || by.Owner.Key == (protocol.Key{}) {
		return nil, wire.FaultOf(invalid("open", m.Name, fmt.Sprintf("key of %d bytes: want %d random bytes", len(m.Key), len(by.Owner.Key))))
	}
	session, config, err := s.store.Open(ctx, m.Name, wire.ReadConfig(m.Config), by)
	if err != nil {
		return nil, wire.FaultOf(err)
	}
	return &semav1.StoreOpenResponse{Session: uint64(session), Config: wire.ConfigOf(config)}, nil
}

// Apply implements [semav1connect.StoreServiceHandler].
func (s *service) Apply(ctx context.Context, m *semav1.StoreApplyRequest) (*semav1.StoreApplyResponse, error) {
	if err := check("apply", m.Name); err != nil {
		return nil, wire.FaultOf(err)
	}
	for _, d := range m.Details {
		if err := check("apply", m.Name, d.GetSite(), d.GetLabels(), d.GetHolder(), d.GetBy(), d.GetKey()); err != nil {
			return nil, wire.FaultOf(err)
		}
	}
	b, err := wire.ReadBatch(m)
	if err != nil {
		return nil, wire.FaultOf(invalid("apply", m.Name, err.Error()))
	}
	r, err := s.store.Apply(ctx, m.Name, b)
	if err != nil {
		return nil, wire.FaultOf(err)
	}
	return wire.ReplyOf(r), nil
}

// Inspect implements [semav1connect.StoreServiceHandler].
func (s *service) Inspect(ctx context.Context, m *semav1.StoreInspectRequest) (*semav1.StoreInspectResponse, error) {
	if err := check("inspect", m.Name); err != nil {
		return nil, wire.FaultOf(err)
	}
	snapshot, err := s.store.Inspect(ctx, m.Name)
	if err != nil {
		return nil, wire.FaultOf(err)
	}
	return wire.SnapshotOf(snapshot), nil
}

// Administer implements [semav1connect.StoreServiceHandler].
func (s *service) Administer(ctx context.Context, m *semav1.StoreAdministerRequest) (*semav1.StoreAdministerResponse, error) {
	if err := check("administer", m.Name, m.GetRevoke().GetBy(), m.GetRevoke().GetWhy()); err != nil {
		return nil, wire.FaultOf(err)
	}
	command, known := wire.ReadCommand(m)
	if !known {
		return nil, wire.FaultOf(invalid("administer", m.Name, "missing or unknown command"))
	}
	if err := s.store.Administer(ctx, m.Name, command); err != nil {
		return nil, wire.FaultOf(err)
	}
	return &semav1.StoreAdministerResponse{}, nil
}

// List implements [semav1connect.StoreServiceHandler].
func (s *service) List(ctx context.Context, m *semav1.StoreListRequest) (*semav1.StoreListResponse, error) {
	for _, text := range []string{m.Prefix, m.After} {
		if text == "" {
			continue
		}
		if err := fleet.CheckName(text); err != nil {
			return nil, wire.FaultOf(err)
		}
	}
	page, err := s.store.List(ctx, protocol.ListQuery{Prefix: m.Prefix, After: m.After, Limit: int(min(m.Limit, protocol.MaxPage))})
	if err != nil {
		return nil, wire.FaultOf(err)
	}
	return wire.SummariesOf(page), nil
}

// Ping implements [semav1connect.StoreServiceHandler].
func (s *service) Ping(ctx context.Context, _ *semav1.StorePingRequest) (*semav1.StorePingResponse, error) {
	examiner, err := s.examiner()
	if err != nil {
		return nil, wire.FaultOf(err)
	}
	clock, err := examiner.Ping(ctx)
	if err != nil {
		return nil, wire.FaultOf(err)
	}
	if clock.IsZero() {
		return &semav1.StorePingResponse{}, nil
	}
	return &semav1.StorePingResponse{Clock: clock.UnixMicro()}, nil
}

// Examine implements [semav1connect.StoreServiceHandler].
func (s *service) Examine(ctx context.Context, _ *semav1.StoreExamineRequest) (*semav1.StoreExamineResponse, error) {
	examiner, err := s.examiner()
	if err != nil {
		return nil, wire.FaultOf(err)
	}
	findings, err := examiner.Examine(ctx)
	if err != nil {
		return nil, wire.FaultOf(err)
	}
	reply := &semav1.StoreExamineResponse{}
	for _, f := range findings {
		reply.Findings = append(reply.Findings, &semav1.Finding{Check: f.Check, Level: string(f.Level), Seen: f.Seen, Advice: f.Advice})
	}
	return reply, nil
}

func (s *service) examiner() (fleet.Examiner, error) {
	if e, ok := s.store.(fleet.Examiner); ok {
		return e, nil
	}
	return nil, fmt.Errorf("examine the store: %w", errors.ErrUnsupported)
}

// check returns an error for an invalid name, or a text that is too long.
func check(op, name string, texts ...[]byte) error {
	if err := fleet.CheckName(name); err != nil {
		return err
	}
	for _, text := range texts {
		if len(text) > maxText {
			return invalid(op, name, fmt.Sprintf("instance, metadata or reason of %d bytes: want at most %d", len(text), maxText))
		}
	}
	return nil
}

func invalid(op, name, detail string) error {
	return &sema.Error{Op: op, Name: name, Err: sema.ErrInvalid, Detail: detail}
}

var _ semav1connect.StoreServiceHandler = (*service)(nil)
