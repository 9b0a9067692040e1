//go:build !386 && !arm && !mips && !mipsle

package posix_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host/posix"
)

// A program creates a semaphore that programs in any language can open.
func ExampleCreate() {
	name := fmt.Sprintf("/sema-example-create-%d", os.Getpid())
	workers, err := posix.Create(name, 0o600, 2, false)
	if err != nil {
		log.Fatal(err)
	}
	workers.UnlinkOnClose()
	defer workers.Close()

	if err := workers.Wait(context.Background()); err != nil {
		log.Fatal(err)
	}
	fmt.Println("free while one works:", workers.Value())
	workers.Post()
	fmt.Println("free afterwards:", workers.Value())
	// Output:
	// free while one works: 1
	// free afterwards: 2
}

// The same in C: sem_t *s = sem_open("/jobs", 0); sem_post(s);
func ExampleOpen() {
	name := fmt.Sprintf("/sema-example-open-%d", os.Getpid())
	created, err := posix.Create(name, 0o600, 0, true)
	if err != nil {
		log.Fatal(err)
	}
	defer created.Close()
	defer posix.Unlink(name)

	jobs, err := posix.Open(name)
	if err != nil {
		log.Fatal(err)
	}
	defer jobs.Close()
	created.Post()
	if err := jobs.Wait(context.Background()); err != nil {
		log.Fatal(err)
	}
	fmt.Println("a job is there; another:", jobs.TryWait())
	// Output: a job is there; another: false
}

// A Gate works with all functions that take a sema.Gate, and grants permits.
func ExampleAsGate() {
	tapeDrives, err := posix.New(1)
	if err != nil {
		log.Fatal(err)
	}
	defer tapeDrives.Close()

	gate, err := posix.AsGate(tapeDrives, 1)
	if err != nil {
		log.Fatal(err)
	}
	err = sema.Do(context.Background(), gate, 1, func(ctx context.Context) error {
		_, err := gate.TryAcquire(ctx, 1)
		fmt.Println("second drive:", err != nil)
		return nil
	})
	fmt.Println("done:", err, tapeDrives.Value())
	// Output:
	// second drive: true
	// done: <nil> 1
}

func ExampleSemaphore_Repair() {
	s, err := posix.New(3)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	s.Wait(context.Background()) // by a process that was then killed
	was, err := s.Repair(3)
	fmt.Println("was", was, "is", s.Value(), err)
	// Output: was 2 is 3 <nil>
}
