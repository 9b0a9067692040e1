package wire

import (
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/semav1"
)

// ConfigOf returns the message for a configuration.
func ConfigOf(c protocol.Config) *semav1.Config {
	return &semav1.Config{
		Kind: semav1.Kind(c.Kind), Capacity: c.Capacity, Whole: c.Whole, Ramp: c.Ramp, MaxWaiters: c.MaxWaiters,
		Ttl: int64(c.TTL), Window: int64(c.Window), Draining: c.Draining, Version: c.Version, Protocol: c.Protocol, Numbered: c.Numbered,
	}
}

// ReadConfig returns the configuration in a message, which may be nil.
func ReadConfig(m *semav1.Config) protocol.Config {
	return protocol.Config{
		Kind: narrow[protocol.Kind](m.GetKind()), Capacity: m.GetCapacity(), Whole: m.GetWhole(), Ramp: m.GetRamp(), MaxWaiters: m.GetMaxWaiters(),
		TTL: protocol.Micros(m.GetTtl()), Window: protocol.Micros(m.GetWindow()), Draining: m.GetDraining(), Version: m.GetVersion(), Protocol: m.GetProtocol(), Numbered: m.GetNumbered(),
	}
}

// ClientOf returns the message for a client.
func ClientOf(c protocol.Client) *semav1.Client {
	return &semav1.Client{Instance: []byte(c.Instance), Kind: []byte(c.Kind), Host: []byte(c.Host), Process: c.Process}
}

// ReadClient returns the client in a message, which may be nil.
func ReadClient(m *semav1.Client) protocol.Client {
	return protocol.Client{Instance: string(m.GetInstance()), Kind: string(m.GetKind()), Host: string(m.GetHost()), Process: m.GetProcess()}
}

// detailsOf returns the message for the details of an acquire, or nil if they are empty.
func detailsOf(d protocol.Details) *semav1.Details {
	if d == (protocol.Details{}) {
		return nil
	}
	return &semav1.Details{Site: field(d.Site), Labels: field(d.Labels), Holder: field(d.Holder), By: field(d.By), Key: field(d.Key)}
}

// readDetails returns the details in a message, which may be nil.
func readDetails(m *semav1.Details) protocol.Details {
	return protocol.Details{
		Site: string(m.GetSite()), Labels: string(m.GetLabels()), Holder: string(m.GetHolder()), By: string(m.GetBy()), Key: string(m.GetKey()),
	}
}

// field returns the bytes of a text, or nil if it is empty.
func field(text string) []byte {
	if text == "" {
		return nil
	}
	return []byte(text)
}

// SnapshotOf returns the message for a snapshot. It omits the keys of sessions, since
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

// ReadSnapshot returns the snapshot in a message.
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

// SummariesOf returns the message for a page of semaphores.
func SummariesOf(page []protocol.Summary) *semav1.StoreListResponse {
	m := &semav1.StoreListResponse{}
	for _, s := range page {
		m.Semaphores = append(m.Semaphores, &semav1.Summary{
			Name: s.Name, Config: ConfigOf(s.Config), Effective: s.Effective, InUse: s.InUse, Leases: s.Leases, Waiting: s.Waiting, Sessions: s.Sessions,
		})
	}
	return m
}

// ReadSummaries returns the page in a message.
func ReadSummaries(m *semav1.StoreListResponse) (page []protocol.Summary) {
	for _, s := range m.Semaphores {
		page = append(page, protocol.Summary{
			Name: s.Name, Config: ReadConfig(s.Config), Effective: s.Effective, InUse: s.InUse, Leases: s.Leases, Waiting: s.Waiting, Sessions: s.Sessions,
		})
	}
	return page
}

// CommandOf returns the message for a command.
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

// ReadCommand returns the command in a message. It returns false if the message has none,
// or one of an unknown kind.
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
