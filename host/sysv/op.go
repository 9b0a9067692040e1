package sysv

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sema-go/sema"
)

// An Op is one change to one semaphore of a set.
type Op struct {
	// Num is the index of the semaphore, from 0.
	Num int
	// Delta is added to the value. The operation has to wait while the value would
	// become negative or, if Delta is 0, while the value is not 0.
	Delta int
	// Undo makes the kernel undo the change when this process ends.
	Undo bool
}

// String returns the operation as it appears in errors: "3:-1 undo".
func (o Op) String() string {
	text := fmt.Sprintf("%d:%+d", o.Num, o.Delta)
	if o.Delta == 0 {
		text = fmt.Sprintf("%d:until 0", o.Num)
	}
	if o.Undo {
		text += " undo"
	}
	return text
}

// sembuf is struct sembuf of <sys/sem.h>.
type sembuf struct {
	num   uint16
	delta int16
	flags int16
}

const undoFlag = 0x1000 // SEM_UNDO

// Op executes all of ops atomically, as soon as all of them are possible. Until then it
// waits, and executes none. The operations are executed in the given order, which
// matters if a semaphore occurs twice. Op fails
//
//   - with the context's cause if ctx ends first, and at once if it has already ended.
//     If the kernel is faster, the operations are done and Op returns nil;
//   - with [sema.ErrClosed] if the set is removed;
//   - with [sema.ErrTooLarge] if a Delta is below -[MaxValue];
//   - with [sema.ErrOverRelease] if a value, or the undo sum of this process, would
//     exceed its range;
//   - with [sema.ErrInvalid] if a semaphore is not in the set, or if there are no
//     operations or more than the system allows ([Limits].Ops).
//
// While Op waits it blocks a thread.
func (s *Set) Op(ctx context.Context, ops ...Op) error {
	if ctx == nil {
		return invalid(s.label(), "op", nilContext, "pass context.Background() to wait without limit")
	}
	encoded, err := s.encode(ops)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err = semTry(s.id, encoded)
	if err == errWouldWait {
		err = semWait(ctx, s.id, encoded)
	}
	switch err {
	case nil:
		return nil
	case errContextEnded:
		return context.Cause(ctx)
	}
	return s.wrap("op "+listOf(ops), err)
}

// errContextEnded is the error of semWait if the context ended.
var errContextEnded = errors.New("context ended")

// TryOp does the same as [Set.Op], but fails with [sema.ErrFull] instead of waiting.
func (s *Set) TryOp(ops ...Op) error {
	encoded, err := s.encode(ops)
	if err != nil {
		return err
	}
	if err := semTry(s.id, encoded); err != nil {
		return s.wrap("try "+listOf(ops), err)
	}
	return nil
}

func (s *Set) encode(ops []Op) ([]sembuf, error) {
	if len(ops) == 0 {
		return nil, invalid(s.label(), "op", "no operations", "pass one or more")
	}
	encoded := make([]sembuf, len(ops))
	for i, o := range ops {
		if o.Num < 0 || o.Num >= s.n {
			return nil, s.noSuchSemaphore("op "+listOf(ops), o.Num)
		}
		switch {
		case o.Delta < -MaxValue:
			return nil, outOfRange(s.label(), "op "+listOf(ops), -o.Delta, sema.ErrTooLarge)
		case o.Delta > MaxValue:
			return nil, outOfRange(s.label(), "op "+listOf(ops), o.Delta, sema.ErrOverRelease)
		}
		encoded[i] = sembuf{num: uint16(o.Num), delta: int16(o.Delta)}
		if o.Undo {
			encoded[i].flags = undoFlag
		}
	}
	return encoded, nil
}

// listOf formats at most the first 8 operations of a list.
func listOf(ops []Op) string {
	const shown = 8
	var parts []string
	for i, o := range ops {
		if i == shown {
			parts = append(parts, fmt.Sprintf("… (%d)", len(ops)))
			break
		}
		parts = append(parts, o.String())
	}
	return strings.Join(parts, ", ")
}
