//go:build linux && (amd64 || arm64 || riscv64 || loong64)

package sysv_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host/sysv"
)

// A tape drive and two buffers are acquired together or not at all, so that no process
// holds one while it waits for the other.
func ExampleSet_Op() {
	const drives, buffers = 0, 1
	set, err := sysv.Create(sysv.Private, 0o600, 1, 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer set.Remove()

	ctx := context.Background()
	take := []sysv.Op{{Num: drives, Delta: -1, Undo: true}, {Num: buffers, Delta: -2, Undo: true}}
	release := []sysv.Op{{Num: drives, Delta: +1, Undo: true}, {Num: buffers, Delta: +2, Undo: true}}
	if err := set.Op(ctx, take...); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(set.Values())

	brief, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	fmt.Println(set.Op(brief, take...))

	set.Op(ctx, release...)
	fmt.Println(set.Values())
	// Output:
	// [0 1] <nil>
	// context deadline exceeded
	// [1 3] <nil>
}

// A semaphore that C programs use too, as a gate for Go code.
func ExampleAsGate() {
	set, err := sysv.Create(sysv.Private, 0o600, 4)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer set.Remove()
	licences, err := sysv.AsGate(set, 0, 4)
	if err != nil {
		fmt.Println(err)
		return
	}
	err = sema.Do(context.Background(), licences, 3, func(context.Context) error {
		free, err := set.Value(0)
		fmt.Println(free, "free")
		return err
	})
	fmt.Println(err)
	free, _ := set.Value(0)
	fmt.Println(free, "free")
	// Output:
	// 1 free
	// <nil>
	// 4 free
}

// Programs that agree on a file find the same set, whichever starts first.
func ExampleOpenOrCreate() {
	file, err := os.CreateTemp("", "licences") // for example /etc/app/licences
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.Remove(file.Name())
	defer file.Close()
	key, err := sysv.KeyOf(file.Name(), 'L')
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		set, err := sysv.OpenOrCreate(key, 0o600, 4)
		if err != nil {
			fmt.Println(err)
			return
		}
		free, _ := set.Value(0)
		fmt.Println(set.Len(), "semaphore,", free, "free")
		defer set.Remove()
	}
	// Output:
	// 1 semaphore, 4 free
	// 1 semaphore, 4 free
}
