//go:build linux

// Command cbuffer shares a bounded buffer between a program in C and one in Go: two
// producers and two consumers, one of each in each language. The buffer and its three
// semaphores, the sem_t of glibc, are in a file that both have mapped.
//
//	go run ./examples/cbuffer
//
// It compiles its other half, c/peer.c, with gcc. It prints how many items each consumer
// took from each producer, and exits with code 1 unless each item was taken exactly once.
//
// Among Go programs use a channel in a process, and a socket or a queue between processes.
// This is for meeting a program in another language that already uses sem_t.
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sema-go/sema/group"
)

//go:embed c/peer.c
var peerSource string

const firstOfC = 1000 // items of Go count from 0, those of C from here

func main() {
	items := flag.Int("items", 32, "items of both producers together, an even number")
	flag.Parse()
	if *items < 2 || *items%2 != 0 || *items > 1000 {
		fmt.Fprintln(os.Stderr, "cbuffer: want an even number of items from 2 to 1000")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *items); err != nil {
		fmt.Fprintln(os.Stderr, "cbuffer:", err)
		os.Exit(1)
	}
}

// run starts both halves. Each produces and consumes half of the items.
func run(ctx context.Context, items int) error {
	dir, err := os.MkdirTemp("", "cbuffer")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "buffer")
	b, err := create(file)
	if err != nil {
		return err
	}
	defer b.close()
	peer := filepath.Join(dir, "peer")
	compile := exec.CommandContext(ctx, "gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", peer, "-x", "c", "-")
	compile.Stdin = strings.NewReader(peerSource)
	if out, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("gcc: %w\n%s", err, out)
	}

	// The buffer is full of items of Go when C starts, and C takes the first of them. So
	// each language takes items of the other in every run.
	ahead := min(capacity, items/2)
	if err := b.produce(ctx, 0, ahead); err != nil {
		return err
	}
	var byGo, byC []int
	g := group.New(ctx, nil)
	g.Go(func(ctx context.Context) error { return b.produce(ctx, ahead, items/2) })
	g.Go(func(ctx context.Context) (err error) {
		if err = b.untilTaken(ctx); err == nil {
			byGo, err = b.consume(ctx, items/2)
		}
		return err
	})
	g.Go(func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, peer, file, strconv.Itoa(items/2))
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		for _, line := range strings.Fields(string(out)) {
			item, err := strconv.Atoi(line)
			if err != nil {
				return err
			}
			byC = append(byC, item)
		}
		return err
	})
	if err := g.Wait(); err != nil {
		return err
	}
	return report(items, byGo, byC)
}

// report prints what was taken, and checks that each item was taken once.
func report(items int, byGo, byC []int) error {
	seen := map[int]int{}
	count := func(consumer string, taken []int) {
		fromC := 0
		for _, item := range taken {
			seen[item]++
			if item >= firstOfC {
				fromC++
			}
		}
		fmt.Printf("%s took %d items: %d of Go, %d of C\n", consumer, len(taken), len(taken)-fromC, fromC)
	}
	count("Go", byGo)
	count("C", byC)
	for i := range items / 2 {
		if seen[i] != 1 || seen[firstOfC+i] != 1 {
			return fmt.Errorf("item %d of Go was taken %d times, that of C %d times", i, seen[i], seen[firstOfC+i])
		}
	}
	fmt.Printf("%d items, each taken once\n", len(seen))
	return nil
}
