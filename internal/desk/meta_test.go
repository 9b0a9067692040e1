package desk_test

import (
	"testing"

	"github.com/sema-go/sema/internal/desk"
)

// FuzzMeta_ComesBack: metadata and identity are found again in what is stored, and an
// instance that is no desk has no identity.
func FuzzMeta_ComesBack(f *testing.F) {
	for _, meta := range []string{"", " ", "x", "[]", " []", "x [] []", `x [by="a"]`, `x [by="a" key=00]`, "x [key=00112233445566778899aabb]", `by="`, "]", " [", `x [by="a"key=00]`} {
		f.Add(meta, "", "")
		f.Add(meta, `team "a" [b] ]`, "k")
	}
	f.Fuzz(func(t *testing.T, meta, by, key string) {
		label := desk.Label(desk.Request{Semaphore: "db", Meta: meta, By: by}, key)
		if gotMeta, gotBy := desk.ReadMeta("desk/host/1/2", label); gotMeta != meta || gotBy != by {
			t.Errorf("%q by %q is stored as %q, and comes back as %q by %q", meta, by, label, gotMeta, gotBy)
		}
		if got, by := desk.ReadMeta("host/1/2", label); got != label || by != "" {
			t.Errorf("the metadata %q of a program comes back as %q by %q", label, got, by)
		}
	})
}
