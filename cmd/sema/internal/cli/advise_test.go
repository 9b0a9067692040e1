package cli

import (
	"strings"
	"testing"

	"github.com/sema-go/sema/cmd/sema/internal/scope"
)

// TestAdviceText_CountsHaveTheirNouns checks singular and plural.
func TestAdviceText_CountsHaveTheirNouns(t *testing.T) {
	t.Parallel()
	for capacity, want := range map[int64]string{
		1: "acquires: 1 a second, held for 500ms on average: 0.5 of 1 permit in use on average (last 5m0s)\n",
		2: "acquires: 1 a second, held for 500ms on average: 0.5 of 2 permits in use on average (last 5m0s)\n",
	} {
		text := adviceText(scope.Advice{Capacity: capacity, Window: 300, Arrivals: 1, MeanHold: new(0.5), Load: new(0.5), Needed: 1})
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
