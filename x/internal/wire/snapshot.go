package wire

import (
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/semav1"
)

// ConfigOf is the message for a configuration.
func ConfigOf(c protocol.Config) *semav1.Config {
	return &semav1.Config{
		Kind: semav1.Kind(c.Kind), Capacity: c.Capacity, Whole: c.Whole, Ramp: c.Ramp, MaxWaiters: c.MaxWaiters,
		Ttl: int64(c.TTL), Window: int64(c.Window), Draining: c.Draining, Version: c.Version, Protocol: c.Protocol, Numbered: c.Numbered,
	}
}

// ReadConfig is the configuration in a message, which may be missing.
func ReadConfig(m *semav1.Config) protocol.Config {
	return protocol.Config{
		Kind: narrow[protocol.Kind](m.GetKind()), Capacity: m.GetCapacity(), Whole: m.GetWhole(), Ramp: m.GetRamp(), MaxWaiters: m.GetMaxWaiters(),
		TTL: protocol.Micros(m.GetTtl()), Window: protocol.Micros(m.GetWindow()), Draining: m.GetDraining(), Version: m.GetVersion(), Protocol: m.GetProtocol(), Numbered: m.GetNumbered(),
	}
}

// SnapshotOf returns the message for a snapshot. The keys of sessions are left out:
// readers must not be able to act as holders.
func SnapshotOf(s protocol.Snapshot) *semav1.StoreInspectResponse {
	m := &semav1.StoreInspectResponse{Config: ConfigOf(s.Config), Effective: s.Effective, InUse: s.InUse}
	for _, r := range s.Sessions {
		m.Sessions = append(m.Sessions, &semav1.SessionInfo{Session: uint64(r.Session), Client: ClientOf(r.Client), Renewed: int64(r.Renewed), Principal: r.Owner.Principal})
	}
	for _, l := range s.Leases {
		m.Leases = append(m.Leases, &semav1.LeaseInfo{
			Seq: uint64(l.Seq), Session: uint64(l.Session), Weight: l.Weight, Since: int64(l.Since), Pooled: l.Pooled, Revoked: l.Revoked, Slots: string(l.Slots), Details: detailsOf(l.Details),
		})
	}
	for _, t := range s.Queue {
		m.Queue = append(m.Queue, &semav1.TicketInfo{Ticket: uint64(t.Ticket), Session: uint64(t.Session), Weight: t.Weight, Since: int64(t.Since), Details: detailsOf(t.Details)})
	}
	return m
}

// ReadSnapshot is the snapshot in a message.
func ReadSnapshot(m *semav1.StoreInspectResponse) protocol.Snapshot {
	s := protocol.Snapshot{Config: ReadConfig(m.Config), Effective: m.Effective, InUse: m.InUse}
	for _, r := range m.Sessions {
		s.Sessions = append(s.Sessions, protocol.SessionInfo{Session: protocol.Session(r.Session), Client: ReadClient(r.Client), Renewed: protocol.Micros(r.Renewed), Owner: protocol.Owner{Principal: r.Principal}})
	}
	for _, l := range m.Leases {
		s.Leases = append(s.Leases, protocol.LeaseInfo{
			Seq: protocol.Seq(l.Seq), Session: protocol.Session(l.Session), Weight: l.Weight, Since: protocol.Micros(l.Since), Pooled: l.Pooled, Revoked: l.Revoked, Slots: protocol.Slots(l.Slots), Details: readDetails(l.Details),
		})
	}
	for _, t := range m.Queue {
		s.Queue = append(s.Queue, protocol.TicketInfo{Ticket: protocol.Ticket(t.Ticket), Session: protocol.Session(t.Session), Weight: t.Weight, Since: protocol.Micros(t.Since), Details: readDetails(t.Details)})
	}
	return s
}

// CommandOf is the message for a command.
func CommandOf(name string, c fleet.Command) *semav1.StoreAdministerRequest {
	m := &semav1.StoreAdministerRequest{Name: name}
	switch {
	case c.Configure != nil:
		m.Command = &semav1.StoreAdministerRequest_Configure{Configure: ConfigOf(*c.Configure)}
	case c.Revoke != nil:
		m.Command = &semav1.StoreAdministerRequest_Revoke{Revoke: &semav1.Revocation{
			Lease: uint64(c.Revoke.Lease), AtOnce: c.Revoke.AtOnce, By: []byte(c.Revoke.By), Why: []byte(c.Revoke.Why),
		}}
	case c.Delete:
		m.Command = &semav1.StoreAdministerRequest_Delete{Delete: &semav1.Deletion{Version: c.DeleteVersion}}
	}
	return m
}

// ReadCommand is the command in a message. It has none if that is of a kind that
// is not known here.
func ReadCommand(m *semav1.StoreAdministerRequest) (c fleet.Command, known bool) {
	switch command := m.Command.(type) {
	case *semav1.StoreAdministerRequest_Configure:
		config := ReadConfig(command.Configure)
		c.Configure = &config
	case *semav1.StoreAdministerRequest_Revoke:
		c.Revoke = &fleet.Revocation{
			Lease: protocol.Seq(command.Revoke.GetLease()), AtOnce: command.Revoke.GetAtOnce(), By: string(command.Revoke.GetBy()), Why: string(command.Revoke.GetWhy()),
		}
	case *semav1.StoreAdministerRequest_Delete:
		c.Delete, c.DeleteVersion = true, command.Delete.GetVersion()
	default:
		return c, false
	}
	return c, true
}
