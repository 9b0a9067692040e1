package runner

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/scope"
)

// checkNumbers fails if the permits of the semaphore have no numbers, or if some numbers have no
// device. It is called before the acquire, which would create the semaphore and wait. It ignores
// a store that does not reply: the acquire reports that.
func (w *wrapper) checkNumbers(ctx context.Context, s scope.Scope) error {
	if !w.Want.Numbered {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	capacity, err := scope.CheckNumbered(ctx, s, w.Want.Name, cmp.Or(w.Want.Capacity, 1))
	var misuse *exit.Error
	switch {
	case errors.As(err, &misuse):
		return err
	case err != nil || w.Devices == nil:
		return nil
	}
	return w.Devices.Check(w.Want.Name, capacity)
}

// numbers returns the variables with the numbers of the permits, and with their devices.
func (w *wrapper) numbers(hold scope.Hold) (environment []string, err error) {
	if !w.Want.Numbered {
		return nil, nil
	}
	slots := hold.Slots()
	if int64(len(slots)) != w.Weight { // replaced since checkNumbers
		return nil, scope.NotNumbered(w.Want.Name)
	}
	environment = []string{"SEMA_SLOTS=" + ListOf(slots)}
	if w.Devices != nil {
		device, err := w.Devices.Environment(slots)
		return append(environment, device), err
	}
	return environment, nil
}

// ListOf returns numbers in the form of SEMA_SLOTS: 0,3.
func ListOf(slots []int64) string {
	var texts []string
	for _, n := range slots {
		texts = append(texts, strconv.FormatInt(n, 10))
	}
	return strings.Join(texts, ",")
}
