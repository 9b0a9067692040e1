package pgstore

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"

	"github.com/sema-go/sema/fleet/protocol"
)

// Inspect implements [fleet.Store].
func (s *Store) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	var found []byte
	err := s.query(ctx, true, func(row pgx.Row) error { return row.Scan(&found) }, s.calls.inspect, s.options.Prefix+name)
	switch {
	case err != nil:
		return protocol.Snapshot{}, err
	case found == nil:
		return protocol.Snapshot{}, about(name, fs.ErrNotExist)
	}
	snapshot, err := decodeSnapshot(found)
	if err != nil {
		return protocol.Snapshot{}, about(name, err)
	}
	return snapshot, nil
}

// decodeSnapshot reads what the function inspect returns.
func decodeSnapshot(text []byte) (protocol.Snapshot, error) {
	read := struct {
		Config           []int64
		Effective, InUse int64
		Sessions         []struct {
			Session                          protocol.Session
			Instance, Client, Key, Principal string
			Renewed                          protocol.Micros
		}
		Leases []struct {
			Seq             protocol.Seq
			Session         protocol.Session
			Weight          int64
			Since           protocol.Micros
			Pooled, Revoked bool
			Slots           protocol.Slots
			Details         string
		}
		Queue []struct {
			Ticket  int64 // clients choose it, and may set all bits
			Session protocol.Session
			Weight  int64
			Since   protocol.Micros
			Details string
		}
	}{}
	if err := json.Unmarshal(text, &read); err != nil {
		return protocol.Snapshot{}, err
	}
	config, err := decodeConfig(read.Config)
	if err != nil {
		return protocol.Snapshot{}, err
	}
	snapshot := protocol.Snapshot{Config: config, Effective: read.Effective, InUse: read.InUse}
	for _, r := range read.Sessions {
		key, err := protocol.ParseKey(r.Key)
		if err != nil {
			return snapshot, fmt.Errorf("session %d: %w", r.Session, err)
		}
		client, err := protocol.DecodeClient(decodeText(r.Instance), r.Client)
		if err != nil {
			return snapshot, fmt.Errorf("client of session %d: %w", r.Session, err)
		}
		snapshot.Sessions = append(snapshot.Sessions, protocol.SessionInfo{
			Session: r.Session, Client: client, Owner: protocol.Owner{Key: key, Principal: decodeText(r.Principal)}, Renewed: r.Renewed,
		})
	}
	for _, l := range read.Leases {
		details, err := protocol.DecodeDetails(l.Details)
		if err != nil {
			return snapshot, fmt.Errorf("details of lease %d: %w", l.Seq, err)
		}
		snapshot.Leases = append(snapshot.Leases, protocol.LeaseInfo{
			Seq: l.Seq, Session: l.Session, Weight: l.Weight, Since: l.Since, Pooled: l.Pooled, Revoked: l.Revoked, Slots: l.Slots, Details: details,
		})
	}
	for _, t := range read.Queue {
		details, err := protocol.DecodeDetails(t.Details)
		if err != nil {
			return snapshot, fmt.Errorf("details of ticket %d of session %d: %w", t.Ticket, t.Session, err)
		}
		snapshot.Queue = append(snapshot.Queue, protocol.TicketInfo{
			Ticket: protocol.Ticket(t.Ticket), Session: t.Session, Weight: t.Weight, Since: t.Since, Details: details,
		})
	}
	return snapshot, nil
}
