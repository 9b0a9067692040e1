package sysv

import (
	"fmt"

	"github.com/sema-go/sema"
)

// Value returns the current value of one semaphore.
func (s *Set) Value(num int) (int, error) { return s.query("value", num, queryValue) }

// LastPid returns the PID of the process that last changed the semaphore. It returns 0
// if no process did, or if that process is in a PID namespace that is not visible.
func (s *Set) LastPid(num int) (int, error) { return s.query("last pid", num, queryPid) }

// Waiting returns the number of threads, in all processes, that wait for the
// semaphore's value to rise, and the number that wait for it to be 0. A thread that
// waits for several semaphores counts at the one that blocks it.
func (s *Set) Waiting(num int) (forRise, forZero int, err error) {
	if forRise, err = s.query("waiting", num, queryWaitingForRise); err != nil {
		return 0, 0, err
	}
	if forZero, err = s.query("waiting", num, queryWaitingForZero); err != nil {
		return 0, 0, err
	}
	return forRise, forZero, nil
}

func (s *Set) query(verb string, num int, query semQuery) (int, error) {
	verb = fmt.Sprintf("%s of semaphore %d", verb, num)
	if num < 0 || num >= s.n {
		return 0, s.noSuchSemaphore(verb, num)
	}
	result, err := semQueryNumber(s.id, num, query)
	if err != nil {
		return 0, s.wrap(verb, err)
	}
	return result, nil
}

// Values returns the values of all semaphores, read atomically.
func (s *Set) Values() ([]int, error) {
	values, err := semGetAll(s.id, s.n)
	if err != nil {
		return nil, s.wrap("values", err)
	}
	return values, nil
}

// SetValue sets the value of one semaphore, regardless of holders, and resets the undo
// sums of all processes for it. It is meant for operators: to restore permits that were
// lost without Undo, or to change a capacity while no permit is held.
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

// SetValues does the same as [Set.SetValue] for all semaphores of the set, atomically.
func (s *Set) SetValues(values ...int) error {
	const verb = "set values"
	if len(values) != s.n {
		return invalid(s.label(), verb, fmt.Sprintf("%d values for %d semaphores", len(values), s.n), "pass one for each semaphore")
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
