package main

import "github.com/sema-go/sema/fleet/protocol"

// A policy is how much of a semaphore somebody takes who serves others of its
// own from blocks: how much more than it needs it asks for, and what it gives
// back. Instances and regions have the same one.
//
// Both policies ask when they are short, one ticket at a time; and do not reuse
// blocks for longer than a quantum while others wait.
type policy uint8

const (
	// sharing keeps ready what [protocol.Reply.Cushion] says, and gives back what
	// is beyond twice that. While it is recalled, it gives back half of what is
	// free, again with each answer: others need some of it, hardly all. It is
	// package fleet's.
	sharing policy = iota

	// doubling asks for as much as it has, gives back half of what is free at a
	// heartbeat, and all of it when it is recalled. It is here to compare.
	doubling
)

func (p policy) String() string {
	if p == doubling {
		return "doubling"
	}
	return "sharing"
}

// A stake is what somebody has of a semaphore, and what it knows about it.
type stake struct {
	used, free int64
	spare      int64           // what the engine had left when it last answered
	lent       int64           // and what it had not
	recalled   protocol.Micros // since when others wait; 0: nobody does
	speaking   bool            // an answer is on its way
}

// want is how much to ask for who is short of some.
func (p policy) want(short int64, s stake) int64 {
	switch {
	case p == sharing:
		return short + s.cushion(s.used+short)
	case s.recalled > 0:
		return short
	}
	return max(short, s.used+s.free)
}

// surplus is how much to give back of what is free though nobody waits for it.
func (p policy) surplus(s stake) int64 {
	if keep := s.cushion(s.used); p == sharing && s.free > 2*keep {
		return s.free - keep
	}
	return 0
}

// yield is how much to give back of what is free because others wait.
func (p policy) yield(s stake) int64 {
	switch {
	case p == doubling:
		return s.free
	case s.speaking:
		return 0
	}
	return (s.free + 1) / 2
}

// decay is how much to give back of what is free at a heartbeat.
func (p policy) decay(s stake) int64 {
	if p == doubling {
		return (s.free + 1) / 2
	}
	return 0
}

// cushion is how much to keep ready for a use.
func (s stake) cushion(use int64) int64 {
	return protocol.Reply{Config: protocol.Config{Capacity: s.spare + s.lent}, InUse: s.lent}.Cushion(use)
}

// A block is a pooled lease.
type block struct {
	lease        protocol.Seq
	weight, used int64
	since        protocol.Micros
}

// retired reports whether a block is not to be reused any more: others wait, and
// the quantum has passed since that was heard and the block was had.
func (b block) retired(now, recalled, quantum protocol.Micros) bool {
	return recalled > 0 && now >= max(recalled, b.since)+quantum
}
