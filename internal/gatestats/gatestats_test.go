package gatestats

import (
	"testing"

	"github.com/sema-go/sema"
)

// An embedding is a gate whose statistics embed those of package sema, as in package fleet.
type embedding struct{}

func (embedding) Stats() struct {
	sema.Stats
	Extra int
} {
	return struct {
		sema.Stats
		Extra int
	}{sema.Stats{Capacity: 7}, 3}
}

// An unrelated type has statistics of another kind.
type unrelated struct{}

func (unrelated) Stats() struct{ Stats int } { return struct{ Stats int }{} }

func TestOf_FindsStatistics(t *testing.T) {
	t.Parallel()
	if st, _ := Of(sema.New(5))(); st.Capacity != 5 {
		t.Errorf("a semaphore of 5 has capacity %d", st.Capacity)
	}
	st, all := Of(embedding{})()
	if st.Capacity != 7 || all.(struct {
		sema.Stats
		Extra int
	}).Extra != 3 {
		t.Errorf("%+v, %+v", st, all)
	}
	for _, none := range []any{nil, 3, unrelated{}, struct{ sema.Gate }{}} {
		if Of(none) != nil {
			t.Errorf("%T has statistics", none)
		}
	}
}
