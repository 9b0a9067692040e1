package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/pgtest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	for _, err := range []error{pgtest.Shared.End(), goleak.Find()} {
		if err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// TestPool_CountsConnections: a semaphore alone opens a connection for each query, and a
// pool at most Size, also again after the server has killed them. No query fails.
func TestPool_CountsConnections(t *testing.T) {
	url := pgtest.Shared.Server(t).URL()
	out := storetest.Printed(t, func() {
		if err := run(context.Background(), url, 10); err != nil {
			t.Fatal(err)
		}
	})
	t.Log("\n" + out)
	lines := regexp.MustCompile(`(?m)^(\D+)(?:(\d+) connections killed)?: 300 queries, (\d+) connections opened, 0 failed$`).FindAllStringSubmatch(out, -1)
	if len(lines) != 3 {
		t.Fatalf("printed %q", out)
	}
	alone, pooled, again := number(t, lines[0][3]), number(t, lines[1][3]), number(t, lines[2][3])
	if alone != 300 || pooled < 1 || pooled > size {
		t.Errorf("%d connections opened with a semaphore alone, %d with a pool; want 300, and at most %d", alone, pooled, size)
	}
	// All that were idle are found broken, and no more are opened than the pool has.
	if killed := number(t, lines[2][2]); killed != pooled || again < 1 || again > size {
		t.Errorf("%d of %d killed, then %d opened", killed, pooled, again)
	}
	if broken := regexp.MustCompile(`(\d+) checks found`).FindStringSubmatch(out); broken == nil || broken[1] == "0" {
		t.Errorf("no check found a broken connection: %q", out)
	}
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
