package sysv

import (
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// An Info describes a set. [Set.Stat] and [List] return it.
type Info struct {
	ID         int
	Key        Key
	Semaphores int
	Mode       fs.FileMode // r: read values, w: change them
	UID, GID   int         // owner
	CreatorUID int
	CreatorGID int
	LastOp     time.Time // time of the last Op; zero if there was none
	Changed    time.Time // time of the creation or of the last change other than an Op
}

// Stat returns the state of the set, which needs permission to read.
func (s *Set) Stat() (Info, error) {
	info, err := semStat(s.id)
	if err != nil {
		return Info{}, s.wrap("stat", err)
	}
	return info, nil
}

// Chmod changes the users that may read (r) and change (w) values. Only root, the owner
// and the creator may call it.
func (s *Set) Chmod(mode fs.FileMode) error {
	verb := fmt.Sprintf("chmod %04o", mode.Perm())
	if mode&^fs.ModePerm != 0 {
		return invalid(s.label(), verb, fmt.Sprintf("mode %v has more than permission bits", mode), "use only permission bits")
	}
	return s.change(verb, func(owner *ownership) { owner.mode = mode })
}

// Chown changes the owner; -1 leaves the user or the group unchanged. The creator stays
// the same and keeps the permissions of an owner.
func (s *Set) Chown(uid, gid int) error {
	return s.change(fmt.Sprintf("chown %d:%d", uid, gid), func(owner *ownership) {
		if uid != -1 {
			owner.uid = uid
		}
		if gid != -1 {
			owner.gid = gid
		}
	})
}

// An ownership is the part of an Info that can be changed.
type ownership struct {
	uid, gid int
	mode     fs.FileMode
}

// change edits the ownership of the set. It reads and writes in two steps, because the
// kernel offers no atomic change: if two programs change the same set at the same time,
// one change may be lost.
func (s *Set) change(verb string, edit func(*ownership)) error {
	info, err := semStat(s.id)
	if err != nil {
		return s.wrap(verb, err)
	}
	owner := ownership{info.UID, info.GID, info.Mode}
	edit(&owner)
	if err := semChange(s.id, owner); err != nil {
		return s.wrap(verb, err)
	}
	return nil
}

// List returns all sets of this IPC namespace, including those that this process may
// not use.
func List() ([]Info, error) {
	text, err := readKernelFile("/proc/sysvipc/sem")
	if err != nil {
		return nil, err
	}
	var list []Info
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		if i == 0 {
			continue // the heading
		}
		var info Info
		var lastOp, changed int64
		var mode uint32
		if _, err := fmt.Sscanf(line, "%d %d %o %d %d %d %d %d %d %d", &info.Key, &info.ID, &mode, &info.Semaphores,
			&info.UID, &info.GID, &info.CreatorUID, &info.CreatorGID, &lastOp, &changed); err != nil {
			return nil, fmt.Errorf("sema: /proc/sysvipc/sem, line %q: %w", line, err)
		}
		info.Mode = fs.FileMode(mode).Perm()
		info.LastOp, info.Changed = timeOf(lastOp), timeOf(changed)
		list = append(list, info)
	}
	return list, nil
}

func timeOf(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// Limits contains the limits of this IPC namespace, which root sets with
// sysctl kernel.sem="SetSize Semaphores Ops Sets".
type Limits struct {
	SetSize    int // semaphores in one set (SEMMSL)
	Semaphores int // semaphores in all sets (SEMMNS)
	Ops        int // operations in one Op (SEMOPM)
	Sets       int // sets (SEMMNI)
}

// CurrentLimits returns the limits.
func CurrentLimits() (Limits, error) {
	text, err := readKernelFile("/proc/sys/kernel/sem")
	if err != nil {
		return Limits{}, err
	}
	var l Limits
	if _, err := fmt.Sscan(text, &l.SetSize, &l.Semaphores, &l.Ops, &l.Sets); err != nil {
		return Limits{}, fmt.Errorf("sema: /proc/sys/kernel/sem, %q: %w", text, err)
	}
	return l, nil
}
