package protocol

import (
	"errors"
	"strconv"
	"strings"
)

// MaxNumbered is the highest capacity of a semaphore with numbered permits.
const MaxNumbered = 1024

// Slots are the numbers of a lease on a Numbered semaphore, one for each permit: "0-3,7".
// They ascend, and no two leases share one.
type Slots string

// NewSlots returns the slots with the given numbers, which must ascend.
func NewSlots(numbers []int64) Slots {
	var b strings.Builder
	for i := 0; i < len(numbers); {
		last := i
		for last+1 < len(numbers) && numbers[last+1] == numbers[last]+1 {
			last++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(numbers[i], 10))
		if last > i {
			b.WriteString("-" + strconv.FormatInt(numbers[last], 10))
		}
		i = last + 1
	}
	return Slots(b.String())
}

// Numbers returns the numbers, or an error if NewSlots cannot have returned the text.
func (s Slots) Numbers() (numbers []int64, err error) {
	if s == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(string(s), ",") {
		low, high, ranged := strings.Cut(part, "-")
		from, err := strconv.ParseInt(low, 10, 64)
		to := from
		if err == nil && ranged {
			to, err = strconv.ParseInt(high, 10, 64)
		}
		if err != nil || from < 0 || to < from || to >= MaxNumbered || len(numbers) > 0 && from <= numbers[len(numbers)-1] {
			return nil, errors.New("invalid slots: want ascending numbers such as 0-3,7")
		}
		for ; from <= to; from++ {
			numbers = append(numbers, from)
		}
	}
	return numbers, nil
}

// cut splits the slots in two: highest are the highest ones, as many as the weight, and kept
// are the others.
func (s Slots) cut(weight int64) (kept, highest Slots) {
	numbers, _ := s.Numbers() // returned by NewSlots, or checked when the state was restored
	at := len(numbers) - min(int(weight), len(numbers))
	return NewSlots(numbers[:at]), NewSlots(numbers[at:])
}

// freeSlots returns the lowest numbers that no lease has, "" if the semaphore is not Numbered.
// There are enough below the capacity, because the weight fits.
func (s *State) freeSlots(weight int64) Slots {
	if !s.config.Numbered {
		return ""
	}
	taken := map[int64]bool{}
	for l := range s.live.All {
		numbers, _ := l.slots.Numbers()
		for _, n := range numbers {
			taken[n] = true
		}
	}
	free := make([]int64, 0, weight)
	for n := int64(0); int64(len(free)) < weight; n++ {
		if !taken[n] {
			free = append(free, n)
		}
	}
	return NewSlots(free)
}
