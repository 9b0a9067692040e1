package sysv

import (
	"fmt"

	"github.com/sema-go/sema"
)

// Value is the value of one semaphore at this moment.
func (s *Set) Value(num int) (int, error) { return s.ask("value", num, askValue) }

// LastPid is the process that changed the semaphore last. It is 0 if none did,
// or one in a PID namespace that cannot be seen from here.
func (s *Set) LastPid(num int) (int, error) { return s.ask("last pid", num, askPid) }

// Waiting is how many threads, in all processes, wait for the semaphore's
// value to rise, and how many for it to be zero. One that waits for several
// semaphores is counted where it is held up.
func (s *Set) Waiting(num int) (forRise, forZero int, err error) {
	if forRise, err = s.ask("waiting", num, askWaitingForRise); err != nil {
		return 0, 0, err
	}
	if forZero, err = s.ask("waiting", num, askWaitingForZero); err != nil {
		return 0, 0, err
	}
	return forRise, forZero, nil
}

func (s *Set) ask(verb string, num int, question semQuestion) (int, error) {
	verb = fmt.Sprintf("%s of semaphore %d", verb, num)
	if num < 0 || num >= s.n {
		return 0, s.noSuchSemaphore(verb, num)
	}
	answer, err := semAsk(s.id, num, question)
	if err != nil {
		return 0, s.wrap(verb, err)
	}
	return answer, nil
}

// Values is the value of every semaphore, all at the same moment.
func (s *Set) Values() ([]int, error) {
	values, err := semGetAll(s.id, s.n)
	if err != nil {
		return nil, s.wrap("values", err)
	}
	return values, nil
}

// SetValue sets one semaphore, whoever holds what of it, and forgets what any
// process would have undone there. It is for administrators: to bring back
// what was lost without Undo, or to change a capacity while nobody holds any
// of it.
func (s *Set) SetValue(num, value int) error {
	verb := fmt.Sprintf("set semaphore %d", num)
	if num < 0 || num >= s.n {
		return s.noSuchSemaphore(verb, num)
	}
	if err := checkValues(s.label(), verb, []int{value}); err != nil {
		return err
	}
	if err := semSetValue(s.id, num, value); err != nil {
		return s.wrap(verb, err)
	}
	return nil
}

// SetValues is [Set.SetValue] for all semaphores of the set in one step.
func (s *Set) SetValues(values ...int) error {
	const verb = "set values"
	if len(values) != s.n {
		return invalid(s.label(), verb, fmt.Sprintf("%d values for %d semaphores", len(values), s.n), "give one for each semaphore")
	}
	if err := checkValues(s.label(), verb, values); err != nil {
		return err
	}
	if err := semSetAll(s.id, values); err != nil {
		return s.wrap(verb, err)
	}
	return nil
}

func checkValues(name, verb string, values []int) error {
	for _, v := range values {
		if v < 0 || v > MaxValue {
			return outOfRange(name, verb, v, sema.ErrInvalid)
		}
	}
	return nil
}
