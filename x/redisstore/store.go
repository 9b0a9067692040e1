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

// A Store keeps semaphores in one Redis, or in several. It implements [fleet.Store].
type Store struct {
	options  Options
	channels string // prefix of the channels on which instances receive notifications
	program  *program
	servers  []*server
	warnings []string
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
}

// Open implements [fleet.Store].
func (s *Store) Open(ctx context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	version := cmp.Or(c.Protocol, protocol.Version)
	invalid := c.Check()
	created := c
	created.Version, created.Protocol = 1, version
	u, status, err := s.administer(ctx, name, "open", func(p *packer) {
		p.bool(invalid == nil && !by.MustExist)
		p.int(int64(version))
		p.string(by.Client.Instance)
		p.string(by.Client.Encode())
		p.owner(by.Owner)
		p.int(int64(by.Highest))
		p.string(s.scriptNames())
		p.string(string(packConfig(created)))
	})
	switch {
	case err != nil:
		return 0, protocol.Config{}, err
	case status == absent && by.MustExist:
		return 0, protocol.Config{}, withName(name, fs.ErrNotExist)
	case status == absent:
		return 0, protocol.Config{}, withName(name, invalid)
	case status == rejected:
		config := u.config()
		return 0, config, withName(name, fmt.Errorf("%w: semaphore created with version %d, client has version %d (hint: upgrade one version at a time)", protocol.ErrVersion, config.Protocol, version))
	}
	session, config := protocol.Session(u.int()), u.config()
	if s.options.Cluster {
		s.addName(ctx, name)
	}
	return session, config, withName(name, u.err)
}

// Apply implements [fleet.Store].
func (s *Store) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	at := s.location(name)
	request, leases := packBatch(at.epoch.Load(), s.options.Promotion.Microseconds(), b)
	result, err := s.run(ctx, s.program.apply, true, at, request, leases...)
	if err != nil {
		return protocol.Reply{}, withName(name, err)
	}
	raw, err := result.ToString()
	if err != nil {
		return protocol.Reply{}, withName(name, errUnpack)
	}
	epoch, reply, err := unpackReply(raw, b)
	if err != nil {
		return protocol.Reply{}, withName(name, err)
	}
	at.epoch.Store(epoch)
	return reply, nil
}

// Inspect implements [fleet.Store].
func (s *Store) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	at := s.location(name)
	result, err := s.run(ctx, s.program.admin, true, at, s.request(at, "inspect"))
	if err != nil {
		return protocol.Snapshot{}, withName(name, err)
	}
	parts, err := result.ToArray()
	if err != nil { // the reply is not a list only if the semaphore does not exist
		return protocol.Snapshot{}, withName(name, fs.ErrNotExist)
	}
	snapshot, epoch, err := unpackSnapshot(parts)
	if err != nil {
		return protocol.Snapshot{}, withName(name, err)
	}
	at.epoch.Store(epoch)
	return snapshot, nil
}

// Administer implements [fleet.Store].
func (s *Store) Administer(ctx context.Context, name string, c fleet.Command) error {
	switch {
	case c.Configure != nil:
		return s.configure(ctx, name, *c.Configure)
	case c.Revoke != nil:
		_, status, err := s.administer(ctx, name, "revoke", func(p *packer) {
			p.string(decimal(uint64(c.Revoke.Lease)))
			p.bool(c.Revoke.AtOnce)
			p.string(c.Revoke.Note())
		})
		if err == nil && status == rejected {
			err = withName(name, fmt.Errorf("lease %d: %w", c.Revoke.Lease, fs.ErrNotExist))
		}
		return orNotExist(name, status, err)
	case c.Delete:
		return s.delete(ctx, name, c.DeleteVersion)
	}
	return nil
}

func (s *Store) delete(ctx context.Context, name string, version uint64) error {
	u, status, err := s.administer(ctx, name, "delete", func(p *packer) {
		p.int(int64(version))
		p.string(s.scriptNames())
	})
	switch {
	case err == nil && status == conflict:
		return withName(name, conflictError(u.config(), version))
	case err == nil && status == done && s.options.Cluster:
		s.removeName(ctx, name)
	}
	return orNotExist(name, status, err)
}

func conflictError(present protocol.Config, expected uint64) error {
	return fmt.Errorf("%w: it has version %d, not %d", protocol.ErrConflict, present.Version, expected)
}

func (s *Store) configure(ctx context.Context, name string, c protocol.Config) error {
	invalid := c.Check()
	next := c
	next.Version++
	u, status, err := s.administer(ctx, name, "configure", func(p *packer) {
		p.bool(invalid == nil)
		p.int(int64(c.Version))
		p.string(string(packConfig(next)))
	})
	if err != nil || status == absent {
		return orNotExist(name, status, err)
	}
	present := u.config()
	switch {
	case u.err != nil:
		return withName(name, u.err)
	case status == rejected:
		return withName(name, invalid)
	case status == conflict:
		return withName(name, conflictError(present, c.Version))
	case status == fixed:
		return withName(name, errors.New("kind, TTL, window and numbering are fixed when a semaphore is created"))
	case status == raised:
		return withName(name, fmt.Errorf("protocol %d: it is %d, and can be raised by one when no session uses an older one", c.Protocol, present.Protocol))
	}
	return nil
}

// A status is the result of a request to admin.lua.
type status int64

const (
	done status = iota
	absent
	rejected
	conflict
	fixed
	raised
)

func orNotExist(name string, o status, err error) error {
	if err == nil && o == absent {
		return withName(name, fs.ErrNotExist)
	}
	return err
}

// request returns the beginning of a request to admin.lua.
func (s *Store) request(at location, what string) packer {
	var p packer
	p.string(what)
	p.int(at.epoch.Load())
	p.int(s.options.Promotion.Microseconds())
	return p
}

// administer runs admin.lua and returns the status and the part of the reply after it.
func (s *Store) administer(ctx context.Context, name, what string, more func(*packer)) (*unpacker, status, error) {
	at := s.location(name)
	p := s.request(at, what)
	more(&p)
	result, err := s.run(ctx, s.program.admin, what == "open", at, p)
	if err != nil {
		return nil, 0, withName(name, err)
	}
	raw, err := result.ToString()
	if err != nil {
		return nil, 0, withName(name, errUnpack)
	}
	u := &unpacker{rest: raw}
	epoch, o := u.int(), status(u.int())
	if u.err != nil {
		return nil, 0, withName(name, u.err)
	}
	at.epoch.Store(epoch)
	return u, o, nil
}

func unpackSnapshot(parts []rueidis.RedisMessage) (snapshot protocol.Snapshot, epoch int64, err error) {
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
	epoch = u.int()
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
	return snapshot, epoch, cmp.Or(err, u.err)
}

// Warnings returns the problems that Open has found: settings with which a server may lose
// leases, or grant them twice after a failover.
func (s *Store) Warnings() []string { return slices.Clone(s.warnings) }

// Close closes the connections.
func (s *Store) Close() error {
	s.cancel()
	for _, server := range s.servers {
		server.close()
		server.hub.Close()
	}
	return nil
}

// withName adds the name of the semaphore to an error. It returns nil if err is nil.
func withName(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("semaphore %q: %w", name, err)
}

var (
	_ fleet.Store    = (*Store)(nil)
	_ fleet.Examiner = (*Store)(nil)
)
