package wire

import (
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/semav1"
)

// ClientOf returns the message for a client.
func ClientOf(c protocol.Client) *semav1.Client {
	return &semav1.Client{Instance: []byte(c.Instance), Kind: []byte(c.Kind), Host: []byte(c.Host), Process: c.Process}
}

// ReadClient returns the client in a message, which may be missing.
func ReadClient(m *semav1.Client) protocol.Client {
	return protocol.Client{Instance: string(m.GetInstance()), Kind: string(m.GetKind()), Host: string(m.GetHost()), Process: m.GetProcess()}
}

// detailsOf returns the message for the details of an acquire, nil if there are none.
func detailsOf(d protocol.Details) *semav1.Details {
	if d == (protocol.Details{}) {
		return nil
	}
	return &semav1.Details{Site: field(d.Site), Labels: field(d.Labels), Holder: field(d.Holder), By: field(d.By), Key: field(d.Key)}
}

// readDetails returns the details in a message, which may be missing.
func readDetails(m *semav1.Details) protocol.Details {
	return protocol.Details{
		Site: string(m.GetSite()), Labels: string(m.GetLabels()), Holder: string(m.GetHolder()), By: string(m.GetBy()), Key: string(m.GetKey()),
	}
}

// field returns the bytes of a text, nil if it is empty.
func field(text string) []byte {
	if text == "" {
		return nil
	}
	return []byte(text)
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
