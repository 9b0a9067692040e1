// Command seats is a licensed program: at most so many users of this machine run it at
// once. If no seat is free, it fails at once and names their holders. A seat is free again
// when its process ends, even if it crashes or is killed.
//
//	go run ./examples/seats                   # shows it with processes of its own
//	go build -o /tmp/seats ./examples/seats
//	/tmp/seats -n 3 use                       # in four terminals; Ctrl-D ends it
//
// Without "use" it starts four users for three seats, kills the second, and lets the
// fourth try again. It prints the seat of each.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host"
)

func main() {
	seats := flag.Int64("n", 3, "seats of the licence")
	dir := flag.String("dir", "", "directory of the semaphore; default: that of the user")
	flag.Parse()
	var err error
	switch flag.Arg(0) {
	case "use":
		err = use(*dir, *seats)
	case "":
		err = demonstrate()
	default:
		fmt.Fprintln(os.Stderr, "usage: seats [-n N] [-dir DIRECTORY] [use]")
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "seats:", err)
		os.Exit(1)
	}
}

// use takes a seat for as long as the program runs.
func use(dir string, seats int64) error {
	var opts []host.Option
	if dir != "" {
		opts = append(opts, host.Dir(dir))
	}
	licence, err := host.Open("example-licence", seats, opts...)
	if err != nil {
		return err
	}
	defer licence.Close()
	seat, err := licence.TryAcquire(context.Background(), 1)
	if errors.Is(err, sema.ErrFull) {
		return fmt.Errorf("all %d seats are taken: %s", seats, holders(licence))
	} else if err != nil {
		return err
	}
	defer seat.Release()
	// The number of a seat is that of its permit: no two users have the same.
	fmt.Printf("seat %d\n", seat.Slots()[0]+1)
	_, err = io.Copy(io.Discard, os.Stdin) // the program itself: here, it only waits
	return err
}

// holders returns the users of the seats.
func holders(licence *host.Semaphore) string {
	info, err := licence.Inspect(context.Background())
	if err != nil {
		return err.Error()
	}
	var list []string
	for _, h := range info.Holders {
		list = append(list, fmt.Sprintf("seat %d by process %d since %s", h.Slots[0]+1, h.PID, h.Since.Format("15:04")))
	}
	return strings.Join(list, ", ")
}
