package pool_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/pool"
)

// A browser is expensive to start. This one stands for a real one.
type browser struct{ id int }

// Close ends the browser.
func (b *browser) Close() { fmt.Println("browser", b.id, "ends") }

// starter returns a function that starts browsers, numbered from 1.
func starter() func(context.Context) (*browser, error) {
	started := 0
	return func(context.Context) (*browser, error) {
		started++
		fmt.Println("browser", started, "starts")
		return &browser{started}, nil
	}
}

func Example() {
	browsers := pool.New(pool.Config[*browser]{
		Size: 3, Open: starter(), Close: (*browser).Close,
		Options: []sema.Option{sema.Name("browsers"), sema.MaxWait(5 * time.Second)},
	})
	defer browsers.Close()
	for page := range 3 {
		item, err := browsers.Get(context.Background())
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("page", page, "in browser", item.Value().id)
		item.Release()
	}
	// Output:
	// browser 1 starts
	// page 0 in browser 1
	// page 1 in browser 1
	// page 2 in browser 1
	// browser 1 ends
}

// A broken item is discarded, and the next caller gets a new one.
func ExampleItem_Discard() {
	browsers := pool.New(pool.Config[*browser]{Size: 1, Open: starter(), Close: (*browser).Close})
	item, err := browsers.Get(context.Background())
	if err != nil {
		return
	}
	item.Discard() // it has crashed
	item, err = browsers.Get(context.Background())
	if err != nil {
		return
	}
	item.Release()
	// Output:
	// browser 1 starts
	// browser 1 ends
	// browser 2 starts
}

// A connection that listens for notifications stays open for hours. It leaves the pool,
// and still counts until its permit is released.
func ExampleItem_Keep() {
	browsers := pool.New(pool.Config[*browser]{Size: 1, Open: starter(), Close: (*browser).Close})
	item, err := browsers.Get(context.Background())
	if err != nil {
		return
	}
	listener, permit := item.Keep()
	_, err = browsers.TryGet(context.Background())
	fmt.Println(errors.Is(err, sema.ErrFull))
	listener.Close()
	permit.Release()
	// Output:
	// browser 1 starts
	// true
	// browser 1 ends
}

// Do releases the item, and discards it if the function panics.
func ExamplePool_Do() {
	browsers := pool.New(pool.Config[*browser]{Size: 1, Open: starter()})
	err := browsers.Do(context.Background(), func(_ context.Context, item pool.Item[*browser]) error {
		fmt.Println("page in browser", item.Value().id)
		return nil
	})
	fmt.Println(err, browsers.Stats().Idle)
	// Output:
	// browser 1 starts
	// page in browser 1
	// <nil> 1
}

func ExamplePool_TryGet() {
	browsers := pool.New(pool.Config[*browser]{Size: 1, Open: starter()})
	item, err := browsers.Get(context.Background())
	if err != nil {
		return
	}
	_, err = browsers.TryGet(context.Background())
	fmt.Println(errors.Is(err, sema.ErrFull))
	item.Release()
	// Output:
	// browser 1 starts
	// true
}

// A tenant may use two browsers at once, of three that all tenants share.
func ExamplePool_GetVia() {
	browsers := pool.New(pool.Config[*browser]{Size: 3, Open: starter()})
	tenant := sema.New(2, sema.Name("tenant"), sema.MaxWaiters(0))
	for range 3 {
		item, err := browsers.GetVia(context.Background(), tenant, 1)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer item.Release()
	}
	// Output:
	// browser 1 starts
	// browser 2 starts
	// sema: "tenant": acquire 1 of 2 permits: queue full (2 in use, 0 waiting)
}

// An item that broke while it was idle is replaced before it is lent.
func ExampleConfig_check() {
	crashed := map[*browser]bool{}
	browsers := pool.New(pool.Config[*browser]{
		Size: 1, Open: starter(), Close: (*browser).Close,
		Check: func(_ context.Context, b *browser) error {
			if crashed[b] {
				return errors.New("crashed")
			}
			return nil
		},
		CheckAfter: 0, // before each use
	})
	item, err := browsers.Get(context.Background())
	if err != nil {
		return
	}
	crashed[item.Value()] = true
	item.Release()
	item, err = browsers.Get(context.Background())
	if err != nil {
		return
	}
	defer item.Release()
	fmt.Println("page in browser", item.Value().id)
	// Output:
	// browser 1 starts
	// browser 1 ends
	// browser 2 starts
	// page in browser 2
}

// Reset replaces all items, for example after a failover.
func ExamplePool_Reset() {
	browsers := pool.New(pool.Config[*browser]{Size: 2, Open: starter(), Close: (*browser).Close})
	item, err := browsers.Get(context.Background())
	if err != nil {
		return
	}
	browsers.Reset()
	fmt.Println("page in browser", item.Value().id)
	item.Release()
	// Output:
	// browser 1 starts
	// page in browser 1
	// browser 1 ends
}

func ExamplePool_Resize() {
	browsers := pool.New(pool.Config[*browser]{Size: 1, Open: starter(), Close: (*browser).Close})
	browsers.Resize(2) // while it is in use
	fmt.Println(browsers.Stats().Capacity)
	// Output: 2
}

// A shutdown: no new callers, items in use may be returned, then all are closed.
func ExamplePool_Drain() {
	browsers := pool.New(pool.Config[*browser]{Size: 1, Open: starter(), Close: (*browser).Close})
	item, err := browsers.Get(context.Background())
	if err != nil {
		return
	}
	go item.Release()
	fmt.Println(browsers.Drain(context.Background()))
	browsers.Close()
	// Output:
	// browser 1 starts
	// <nil>
	// browser 1 ends
}

// How many items were opened, compared with how many were lent.
func ExamplePool_Stats() {
	browsers := pool.New(pool.Config[*browser]{Size: 2, Open: starter()})
	for range 100 {
		item, err := browsers.Get(context.Background())
		if err != nil {
			return
		}
		item.Release()
	}
	st := browsers.Stats()
	fmt.Println(st.Acquired, "lent,", st.Opens, "opened,", st.Idle, "idle")
	// Output:
	// browser 1 starts
	// 100 lent, 1 opened, 1 idle
}
