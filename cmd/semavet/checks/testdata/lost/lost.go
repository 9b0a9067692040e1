// Package lost never releases what it acquires.
package lost

import (
	"context"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/semavet/checks/testdata/correct/shared"
)

var memory = sema.NewWeighted(10)

func load(ctx context.Context) error {
	return memory.Acquire(ctx, 1) // want `what memory.Acquire\(ctx, 1\) acquires is never released; defer its Release after checking the error`
}

var once = sema.NewWeighted(1)

func start() bool { return once.TryAcquire(1) }

// Budget is exported: another package may release it.
var Budget = sema.NewWeighted(1)

func spend(ctx context.Context) error { return Budget.Acquire(ctx, 1) }

func spendShared(ctx context.Context) error { return shared.Sem.Acquire(ctx, 1) }
