// Package handover calls functions whose only result is a permit.
package handover

import (
	"context"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/semavet/checks/testdata/handover/lib"
)

func dropped(ctx context.Context, s sema.Gate) int64 {
	lib.Must(ctx, s)       // want `the permit of lib.Must is dropped`
	p := lib.Maybe(ctx, s) // want `p is not released on a path to the return in line 14; defer p.Release\(\)`
	return p.Weight()
}

func onlyRead(ctx context.Context, s sema.Gate) int64 {
	return lib.Must(ctx, s).Weight() // want `the permit of lib.Must is dropped`
}

func released(ctx context.Context, s sema.Gate) {
	p := lib.Must(ctx, s)
	defer p.Release()
	lib.Must(ctx, s).Release()
}

func stored(ctx context.Context, s sema.Gate, h *lib.Holder) int64 {
	h.Fill(ctx, s)
	p := h.Permit()
	lib.Nothing()
	return p.Weight()
}
