package rate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/rate"
)

func Example() {
	mails := rate.New(100, time.Minute, rate.Burst(2), sema.Name("mails"))
	for i := range 3 {
		if _, err := mails.TryAcquire(context.Background(), 1); errors.Is(err, sema.ErrFull) {
			fmt.Println("mail", i, "has to wait for about", mails.Delay(1).Round(100*time.Millisecond))
			continue
		}
		fmt.Println("mail", i, "is sent")
	}
	// Output:
	// mail 0 is sent
	// mail 1 is sent
	// mail 2 has to wait for about 600ms
}

// Burst(1) paces: a runway from which one aircraft takes off every 90 seconds.
func ExampleBurst() {
	runway := rate.New(1, 90*time.Second, rate.Burst(1))
	_, first := runway.TryAcquire(context.Background(), 1)
	_, second := runway.TryAcquire(context.Background(), 1)
	fmt.Println(first == nil, errors.Is(second, sema.ErrFull))
	// Output: true true
}

// The cost of a request to a language model is known when the reply is there: estimate it
// first, settle it afterwards.
func ExampleGate_Settle() {
	tokens := rate.New(1000, time.Hour)
	permit, err := tokens.Acquire(context.Background(), 800) // the estimate
	if err != nil {
		return
	}
	tokens.Settle(permit, 300) // what it was
	fmt.Println(tokens.Stats().Free)
	// Output: 700
}

// A downstream that is overloaded sends Retry-After.
func ExampleGate_PauseUntil() {
	api := rate.New(50, time.Second)
	api.PauseUntil(time.Now().Add(time.Minute))
	_, err := api.TryAcquire(context.Background(), 1)
	fmt.Println(errors.Is(err, sema.ErrFull), api.Delay(1).Round(time.Second))
	// Output: true 1m0s
}

func ExampleGate_Set() {
	api := rate.New(50, time.Second)
	api.Set(10, time.Second) // while it is in use
	fmt.Println(api.Rate())
	// Output: 10 1s 10
}

// A megabyte per second, in pieces of at most 64 kB.
func ExampleReader() {
	bandwidth := rate.New(1<<20, time.Second, rate.Burst(64<<10))
	body, err := io.ReadAll(rate.Reader(context.Background(), strings.NewReader("hello"), bandwidth))
	fmt.Println(string(body), err)
	// Output: hello <nil>
}

func ExampleWriter() {
	bandwidth := rate.New(1<<20, time.Second, rate.Burst(64<<10))
	var sent bytes.Buffer
	n, err := io.WriteString(rate.Writer(context.Background(), &sent, bandwidth), "hello")
	fmt.Println(n, err, sent.String())
	// Output: 5 <nil> hello
}

// A permit of a rate and one of a semaphore: at most 10 calls at once, 100 per minute.
func Example_withSemaphore() {
	atOnce, perMinute := sema.New(10, sema.Name("calls")), rate.New(100, time.Minute, sema.Name("calls per minute"))
	permit, err := sema.AcquireAll(context.Background(), sema.Want{Gate: atOnce, N: 1}, sema.Want{Gate: perMinute, N: 1})
	if err != nil {
		return
	}
	defer permit.Release()
	fmt.Println("called")
	// Output: called
}
