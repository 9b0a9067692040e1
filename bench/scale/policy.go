package main

import "github.com/sema-go/sema/fleet/protocol"

// A policy decides how much of a semaphore an instance or a region holds in
// blocks for its own clients: how much more than needed it acquires, and what
// it releases. Instances and regions use the same policy.
//
// Both policies acquire when permits are missing, one ticket at a time. Neither
// reuses blocks for longer than a quantum while others wait.
type policy uint8

const (
	// sharing keeps [protocol.Reply.Cushion] free, and releases what exceeds
	// twice that. While recalled, it releases half of what is free, and again
	// with each reply: others need some of it, hardly all. It is the policy of
	// package fleet.
	sharing policy = iota

	// doubling acquires as much as it has, releases half of what is free at a
	// heartbeat, and all of it when recalled. It exists for comparison.
	doubling
)

func (p policy) String() string {
	if p == doubling {
		return "doubling"
	}
	return "sharing"
}

// holdings are what an instance or a region has of a semaphore, and what it
// knows about the semaphore.
type holdings struct {
	used, free int64
	spare      int64           // what the store had free at its last reply
	lent       int64           // what the store had in use at its last reply
	recalled   protocol.Micros // since when others wait; 0: they do not
	inFlight   bool            // a reply is pending
}

// want returns how much to acquire if short permits are missing.
func (p policy) want(short int64, s holdings) int64 {
	switch {
	case p == sharing:
		return short + s.cushion(s.used+short)
	case s.recalled > 0:
		return short
	}
	return max(short, s.used+s.free)
}

// surplus returns how much of what is free to release although no others wait.
func (p policy) surplus(s holdings) int64 {
	if keep := s.cushion(s.used); p == sharing && s.free > 2*keep {
		return s.free - keep
	}
	return 0
}

// yield returns how much of what is free to release because others wait.
func (p policy) yield(s holdings) int64 {
	switch {
	case p == doubling:
		return s.free
	case s.inFlight:
		return 0
	}
	return (s.free + 1) / 2
}

// decay returns how much of what is free to release at a heartbeat.
func (p policy) decay(s holdings) int64 {
	if p == doubling {
		return (s.free + 1) / 2
	}
	return 0
}

// cushion returns how much to keep free for a use.
func (s holdings) cushion(use int64) int64 {
	return protocol.Reply{Config: protocol.Config{Capacity: s.spare + s.lent}, InUse: s.lent}.Cushion(use)
}

// A block is a pooled lease.
type block struct {
	lease        protocol.Seq
	weight, used int64
	since        protocol.Micros
}

// retired reports whether a block must not be reused: others wait, and the
// quantum has passed since that was reported and since the block was granted.
func (b block) retired(now, recalled, quantum protocol.Micros) bool {
	return recalled > 0 && now >= max(recalled, b.since)+quantum
}
