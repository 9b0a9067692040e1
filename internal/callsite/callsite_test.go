package callsite_test

import (
	"regexp"
	"testing"

	"github.com/sema-go/sema/internal/callsite"
)

func TestHere_ReturnsTheLineOfTheCaller(t *testing.T) {
	t.Parallel()
	first, second := callsite.Here(), callsite.Here() // one line
	again := callsite.Here()
	for _, site := range []string{first, second, again} {
		if !regexp.MustCompile(`^callsite/callsite_test\.go:1[0-9]$`).MatchString(site) {
			t.Errorf("site %q", site)
		}
	}
	if first == again {
		t.Errorf("two lines have the same site %q", first)
	}
}

func BenchmarkHere(b *testing.B) {
	for b.Loop() {
		callsite.Here()
	}
}
