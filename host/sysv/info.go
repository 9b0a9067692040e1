package sysv

import (
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// An Info is what the kernel knows of a set.
type Info struct {
	ID         int
	Key        Key
	Semaphores int
	Mode       fs.FileMode // r: read values, w: change them
	UID, GID   int         // its owner
	CreatorUID int
	CreatorGID int
	LastOp     time.Time // of the last Op; zero if there was none
	Changed    time.Time // when it was created, or last changed otherwise
}

// Stat asks the kernel about the set, which needs permission to read.
func (s *Set) Stat() (Info, error) {
	info, err := semStat(s.id)
	if err != nil {
		return Info{}, s.wrap("stat", err)
	}
	return info, nil
}

// Chmod changes who may read and change values. Only root, the owner and the
// creator may.
func (s *Set) Chmod(mode fs.FileMode) error {
	verb := fmt.Sprintf("chmod %04o", mode.Perm())
	if mode&^fs.ModePerm != 0 {
		return invalid(s.label(), verb, fmt.Sprintf("mode %v has more than permission bits", mode), "use permission bits alone")
	}
	return s.change(verb, func(owner *ownership) { owner.mode = mode })
}

// Chown changes the owner; -1 leaves the user or the group as it is. The
// creator stays the same and keeps an owner's rights.
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

// change reads and writes in two steps, as the kernel has no other way: of two
// programs that change the same set at the same moment one may be ignored.
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

// List is every set of this IPC namespace, whoever may use it.
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

// Limits are the bounds of this IPC namespace, which root sets with
// sysctl kernel.sem="SetSize Semaphores Ops Sets".
type Limits struct {
	SetSize    int // semaphores in one set (SEMMSL)
	Semaphores int // semaphores in all sets (SEMMNS)
	Ops        int // operations in one Op (SEMOPM)
	Sets       int // sets (SEMMNI)
}

// CurrentLimits reads the limits.
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
