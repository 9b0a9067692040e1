package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// A Store is the use of one Redis, or of several, by one client.
type Store struct {
	options  Options
	program  *program
	servers  []*server
	warnings []string
	life     context.Context // until Close
	end      context.CancelFunc
}

// Open is for [fleet.Store].
func (s *Store) Open(ctx context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	version := cmp.Or(c.Protocol, protocol.Version)
	invalid := c.Check()
	made := c
	made.Version, made.Protocol = 1, version
	u, outcome, err := s.administer(ctx, name, "open", func(p *packer) {
		p.bool(invalid == nil && !by.MustExist)
		p.int(int64(version))
		p.string(by.Client.Instance)
		p.string(by.Client.Encode())
		p.owner(by.Owner)
		p.int(int64(by.Highest))
		p.string(s.scriptNames())
		p.string(string(packConfig(made)))
	})
	switch {
	case err != nil:
		return 0, protocol.Config{}, err
	case outcome == absent && by.MustExist:
		return 0, protocol.Config{}, about(name, fs.ErrNotExist)
	case outcome == absent:
		return 0, protocol.Config{}, about(name, invalid)
	case outcome == refused:
		config := u.config()
		return 0, config, about(name, fmt.Errorf("%w: it was made by version %d, this is version %d", protocol.ErrVersion, config.Protocol, version))
	}
	session, config := protocol.Session(u.int()), u.config()
	if s.options.Cluster {
		s.enlist(ctx, name)
	}
	return session, config, about(name, u.err)
}

// Apply is for [fleet.Store].
func (s *Store) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	at := s.place(name)
	request, leases := packBatch(at.met.Load(), s.promotion(), b)
	result, err := s.run(ctx, s.program.apply, true, at, request, leases...)
	if err != nil {
		return protocol.Reply{}, about(name, err)
	}
	raw, err := result.ToString()
	if err != nil {
		return protocol.Reply{}, about(name, errUnpack)
	}
	met, reply, err := unpackReply(raw)
	if err != nil {
		return protocol.Reply{}, about(name, err)
	}
	at.met.Store(met)
	return reply, nil
}

// Inspect is for [fleet.Store].
func (s *Store) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	at := s.place(name)
	result, err := s.run(ctx, s.program.admin, true, at, s.ask(at, "inspect"))
	if err != nil {
		return protocol.Snapshot{}, about(name, err)
	}
	parts, err := result.ToArray()
	if err != nil { // the answer that there is none is no list
		return protocol.Snapshot{}, about(name, fs.ErrNotExist)
	}
	snapshot, met, err := unpackSnapshot(parts)
	if err != nil {
		return protocol.Snapshot{}, about(name, err)
	}
	at.met.Store(met)
	return snapshot, nil
}

// Administer is for [fleet.Store].
func (s *Store) Administer(ctx context.Context, name string, c fleet.Command) error {
	switch {
	case c.Configure != nil:
		return s.configure(ctx, name, *c.Configure)
	case c.Revoke != nil:
		_, outcome, err := s.administer(ctx, name, "revoke", func(p *packer) {
			p.string(decimal(uint64(c.Revoke.Lease)))
			p.bool(c.Revoke.AtOnce)
			p.string(c.Revoke.Note())
		})
		if err == nil && outcome == refused {
			err = about(name, fmt.Errorf("lease %d: %w", c.Revoke.Lease, fs.ErrNotExist))
		}
		return orAbsent(name, outcome, err)
	case c.Delete:
		return s.delete(ctx, name, c.DeleteVersion)
	}
	return nil
}

func (s *Store) delete(ctx context.Context, name string, version uint64) error {
	u, outcome, err := s.administer(ctx, name, "delete", func(p *packer) {
		p.int(int64(version))
		p.string(s.scriptNames())
	})
	switch {
	case err == nil && outcome == conflict:
		return about(name, conflicting(u.config(), version))
	case err == nil && outcome == done && s.options.Cluster:
		s.unlist(ctx, name)
	}
	return orAbsent(name, outcome, err)
}

func conflicting(present protocol.Config, expected uint64) error {
	return fmt.Errorf("%w: it has version %d, not %d", protocol.ErrConflict, present.Version, expected)
}

func (s *Store) configure(ctx context.Context, name string, c protocol.Config) error {
	invalid := c.Check()
	next := c
	next.Version++
	u, outcome, err := s.administer(ctx, name, "configure", func(p *packer) {
		p.bool(invalid == nil)
		p.int(int64(c.Version))
		p.string(string(packConfig(next)))
	})
	if err != nil || outcome == absent {
		return orAbsent(name, outcome, err)
	}
	present := u.config()
	switch {
	case u.err != nil:
		return about(name, u.err)
	case outcome == refused:
		return about(name, invalid)
	case outcome == conflict:
		return about(name, conflicting(present, c.Version))
	case outcome == fixed:
		return about(name, errors.New("kind, TTL, window and numbering are fixed when a semaphore is created"))
	case outcome == raised:
		return about(name, fmt.Errorf("protocol %d: it is %d, and can be raised by one, once nobody uses an older one", c.Protocol, present.Protocol))
	}
	return nil
}

// What comes of a request to admin.lua.
type outcome int64

const (
	done outcome = iota
	absent
	refused
	conflict
	fixed
	raised
)

func orAbsent(name string, o outcome, err error) error {
	if err == nil && o == absent {
		return about(name, fs.ErrNotExist)
	}
	return err
}

// ask begins a request to admin.lua.
func (s *Store) ask(at place, what string) packer {
	var p packer
	p.string(what)
	p.int(at.met.Load())
	p.int(s.promotion())
	return p
}

// administer runs admin.lua, and returns what comes after the outcome.
func (s *Store) administer(ctx context.Context, name, what string, more func(*packer)) (*unpacker, outcome, error) {
	at := s.place(name)
	request := s.ask(at, what)
	more(&request)
	result, err := s.run(ctx, s.program.admin, what == "open", at, request)
	if err != nil {
		return nil, 0, about(name, err)
	}
	raw, err := result.ToString()
	if err != nil {
		return nil, 0, about(name, errUnpack)
	}
	u := &unpacker{rest: raw}
	met, o := u.int(), outcome(u.int())
	if u.err != nil {
		return nil, 0, about(name, u.err)
	}
	at.met.Store(met)
	return u, o, nil
}

func unpackSnapshot(parts []rueidis.RedisMessage) (snapshot protocol.Snapshot, met int64, err error) {
	if len(parts) != 7 {
		return snapshot, 0, errUnpack
	}
	head, err := parts[0].ToString()
	if err != nil {
		return snapshot, 0, errUnpack
	}
	var lists [6][]string
	for i := range lists {
		if lists[i], err = parts[i+1].AsStrSlice(); err != nil {
			return snapshot, 0, errUnpack
		}
	}
	u := &unpacker{rest: head}
	met = u.int()
	u.int() // done
	snapshot.Effective, snapshot.InUse, snapshot.Config = u.int(), u.int(), u.config()
	for i, member := range lists[0] {
		info, bad := parseSession(member, lists[3][i])
		renewed, unread := strconv.ParseInt(lists[1][i], 10, 64)
		owner, unowned := parseOwner(lists[2][i])
		info.Renewed, info.Owner = protocol.Micros(renewed), owner
		snapshot.Sessions = append(snapshot.Sessions, info)
		err = cmp.Or(err, bad, unread, unowned)
	}
	for _, member := range lists[4] {
		info, bad := parseLease(member)
		snapshot.Leases = append(snapshot.Leases, info)
		err = cmp.Or(err, bad)
	}
	for _, member := range lists[5] {
		info, bad := parseTicket(member)
		snapshot.Queue = append(snapshot.Queue, info)
		err = cmp.Or(err, bad)
	}
	return snapshot, met, cmp.Or(err, u.err)
}

// Warnings are what an operator should know: what keeps these servers from
// forgetting, or from serving two masters, is not set. They were found when the
// store was opened.
func (s *Store) Warnings() []string { return slices.Clone(s.warnings) }

// Close lets go of the connections.
func (s *Store) Close() error {
	s.end()
	for _, server := range s.servers {
		server.close()
		server.hub.Close()
	}
	return nil
}

// about says which semaphore an error is about.
func about(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("semaphore %q: %w", name, err)
}

var (
	_ fleet.Store    = (*Store)(nil)
	_ fleet.Examiner = (*Store)(nil)
)
