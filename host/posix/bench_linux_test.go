//go:build !386 && !arm && !mips && !mipsle

package posix_test

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/sema-go/sema/internal/proctest"
)

// BenchmarkWaitPost measures an uncontended wait and post, in Go and in C.
func BenchmarkWaitPost(b *testing.B) {
	b.Run("go", func(b *testing.B) {
		s := create(b, 1)
		ctx := context.Background()
		for b.Loop() {
			s.Wait(ctx)
			s.Post()
		}
	})
	b.Run("glibc", func(b *testing.B) {
		program, s := proctest.CompileC(b, "testdata/bench.c"), create(b, 1)
		out, err := exec.Command(program, s.Name(), strconv.Itoa(b.N)).Output()
		if err != nil {
			b.Fatal(err)
		}
		ns, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(ns, "ns/op")
	})
}
