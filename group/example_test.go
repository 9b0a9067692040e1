package group_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/group"
)

func fetch(_ context.Context, url string) (string, error) {
	if strings.HasSuffix(url, "/missing") {
		return "", errors.New("not found")
	}
	return "page of " + url, nil
}

// Eight downloads at a time. The first error ends the group.
func Example() {
	g := group.New(context.Background(), sema.New(8))
	for _, url := range []string{"a.example", "b.example", "c.example"} {
		g.Go(func(ctx context.Context) error {
			_, err := fetch(ctx, url)
			return err
		})
	}
	fmt.Println(g.Wait())
	// Output: <nil>
}

// All functions run, and Wait returns all errors.
func ExampleAllErrors() {
	g := group.New(context.Background(), sema.New(1), group.AllErrors)
	for _, url := range []string{"a.example/missing", "b.example", "c.example/missing"} {
		g.Go(func(ctx context.Context) error {
			_, err := fetch(ctx, url)
			return err
		})
	}
	fmt.Println(g.Wait())
	// Output:
	// not found
	// not found
}

// A gate of bytes bounds memory: files are processed at the same time as long as they fit
// into 100 MB.
func ExampleGroup_GoN() {
	memory := sema.New(100 << 20)
	g := group.New(context.Background(), memory)
	for _, size := range []int64{60 << 20, 30 << 20, 80 << 20} {
		g.GoN(size, func(context.Context) error {
			_ = make([]byte, size) // read and process the file
			return nil
		})
	}
	fmt.Println(g.Wait())
	// Output: <nil>
}

// What cannot start at once is handled otherwise.
func ExampleGroup_TryGo() {
	g := group.New(context.Background(), sema.New(1))
	started := make(chan struct{})
	g.Go(func(context.Context) error { <-started; return nil })
	if !g.TryGo(func(context.Context) error { return nil }) {
		fmt.Println("busy")
	}
	close(started)
	fmt.Println(g.Wait())
	// Output:
	// busy
	// <nil>
}

// A request that cannot start within its deadline is rejected; the group goes on.
func ExampleGroup_GoWithin() {
	g := group.New(context.Background(), sema.New(1))
	started := make(chan struct{})
	g.Go(func(context.Context) error { <-started; return nil })
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	fmt.Println(g.GoWithin(ctx, 1, func(context.Context) error { return nil }))
	close(started)
	fmt.Println(g.Wait())
	// Output:
	// context deadline exceeded
	// <nil>
}

func ExampleEach() {
	err := group.Each(context.Background(), sema.New(4), slices.Values([]string{"a.example", "b.example/missing"}), func(ctx context.Context, url string) error {
		_, err := fetch(ctx, url)
		return err
	})
	fmt.Println(err)
	// Output: not found
}

// The results are in the order of the arguments.
func ExampleMap() {
	pages, err := group.Map(context.Background(), sema.New(4), []string{"a.example", "b.example"}, fetch)
	fmt.Println(pages, err)
	// Output: [page of a.example page of b.example] <nil>
}

// The loop uses results while others are still computed. To break stops everything.
func ExampleStream() {
	urls := slices.Values([]string{"a.example", "b.example/missing", "c.example"})
	for page, err := range group.Stream(context.Background(), sema.New(4), urls, fetch) {
		if err != nil {
			fmt.Println("skipped:", err)
			continue
		}
		fmt.Println(page)
	}
	// Output:
	// page of a.example
	// skipped: not found
	// page of c.example
}

// A scheduler runs at most two jobs of a kind, but five of one kind.
func ExampleKeyed() {
	kinds := group.NewKeyed(2, sema.Name("jobs"))
	kinds.Set("mail", 5)
	for _, kind := range []string{"report", "mail"} {
		n := 0
		for ; ; n++ {
			if _, err := kinds.Of(kind).TryAcquire(context.Background(), 1); err != nil { //semavet:ignore held until the end
				break
			}
		}
		fmt.Println(kind, n)
	}
	// Output:
	// report 2
	// mail 5
}
