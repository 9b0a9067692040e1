// Command walk counts the lines of all files of a tree, and has at most so many files and
// directories open at once. With a goroutine for each file and no bound, large trees fail
// with "too many open files".
//
//	go run ./examples/walk
//	go run ./examples/walk -descriptors 64 /usr/include
//
// It prints what it has read, and how many descriptors were open at once. Its exit code is
// 1 if something could not be read.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/examples/internal/peak"
	"github.com/sema-go/sema/group"
)

func main() {
	budget := flag.Int64("descriptors", 16, "files and directories open at once")
	flag.Parse()
	if *budget < 1 || flag.NArg() > 1 {
		fmt.Fprintln(os.Stderr, "usage: walk [-descriptors N] [DIRECTORY]")
		os.Exit(2)
	}
	root := "."
	if flag.NArg() == 1 {
		root = flag.Arg(0)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	w := &walker{descriptors: sema.New(*budget, sema.Name("descriptors"))}
	if err := w.walk(ctx, root); err != nil {
		fmt.Fprintln(os.Stderr, "walk:", err)
		os.Exit(1)
	}
	fmt.Printf("%d directories, %d files, %d lines, %d failed; at most %d of %d descriptors open\n",
		w.directories.Load(), w.files.Load(), w.lines.Load(), w.failed.Load(), w.open.Most(), *budget)
	if w.failed.Load() > 0 {
		os.Exit(1)
	}
}

type walker struct {
	descriptors                       *sema.Semaphore
	open                              peak.Meter
	directories, files, lines, failed atomic.Int64
}

// walk reads a tree level by level. A function that held the descriptor of its directory
// while it waits for those of the entries would deadlock as soon as the tree is deeper
// than the budget. Here each permit is released before the next level begins.
func (w *walker) walk(ctx context.Context, root string) error {
	for level := []string{root}; len(level) > 0; {
		lists, err := group.Map(ctx, w.descriptors, level, w.list)
		if err != nil {
			return err
		}
		var directories, files []string
		for i, entries := range lists {
			for _, e := range entries {
				switch path := filepath.Join(level[i], e.Name()); {
				case e.IsDir():
					directories = append(directories, path)
				case e.Type().IsRegular(): // no links, and no devices
					files = append(files, path)
				}
			}
		}
		if err := group.Each(ctx, w.descriptors, slices.Values(files), w.count); err != nil {
			return err
		}
		level = directories
	}
	return nil
}

// list returns the entries of a directory. What cannot be read is reported, and the walk
// goes on.
func (w *walker) list(_ context.Context, path string) ([]fs.DirEntry, error) {
	w.open.Add(1)
	defer w.open.Add(-1)
	w.directories.Add(1)
	entries, err := os.ReadDir(path)
	w.report(err)
	return entries, nil
}

// count counts the lines of a file.
func (w *walker) count(ctx context.Context, path string) error {
	w.open.Add(1)
	defer w.open.Add(-1)
	w.files.Add(1)
	file, err := os.Open(path)
	if err != nil {
		w.report(err)
		return nil
	}
	defer file.Close()
	for buffer := make([]byte, 32<<10); ctx.Err() == nil; {
		n, err := file.Read(buffer)
		w.lines.Add(int64(bytes.Count(buffer[:n], []byte{'\n'})))
		if err == io.EOF {
			return nil
		} else if err != nil {
			w.report(err)
			return nil
		}
	}
	return ctx.Err()
}

func (w *walker) report(err error) {
	if err != nil {
		w.failed.Add(1)
		fmt.Fprintln(os.Stderr, "walk:", err)
	}
}
