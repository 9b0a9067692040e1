// Command llm sends prompts to an upstream that allows so many requests and tokens in a window
// of time, and so many requests at once, for all processes together. The processes share
// these budgets through a store. Start it on several machines:
//
//	go run ./x/examples/llm -requests 500 -tokens 100000 -window 1m -n 20 -workers 10 redis://localhost:6379/0 http://localhost:8080/
//
// The tokens of a prompt are known when its completion has arrived: the budget is charged for
// the most it may cost first, and what it has not cost is refunded to all processes. If the
// upstream replies Retry-After, or states that nothing is left, all of them pause.
//
// While the store is away, each process goes on with a part of the budgets, one -processes-th,
// after a window in which it sends nothing.
//
// It prints a line for each -report with what it has done so far. Its exit code is 1 if a
// prompt failed.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/wfq"
	_ "github.com/sema-go/sema/x/redisstore"
)

func main() {
	var b budget
	flag.Int64Var(&b.requests, "requests", 500, "requests of all processes in a window")
	flag.Int64Var(&b.tokens, "tokens", 100_000, "tokens of all processes in a window")
	flag.DurationVar(&b.window, "window", time.Minute, "the window of the upstream")
	flag.Int64Var(&b.atOnce, "n", 20, "requests of all processes at once")
	flag.Int64Var(&b.processes, "processes", 3, "processes that share the budgets")
	workers := flag.Int("workers", 10, "prompts at a time of this process")
	most := flag.Int64("max-tokens", 400, "the most that a prompt may cost")
	runFor := flag.Duration("for", time.Minute, "how long to send prompts")
	report := flag.Duration("report", 10*time.Second, "how often to print a line")
	flag.Parse()
	if flag.NArg() != 2 || b.requests < 50 || b.tokens < 50 || b.atOnce < 1 || b.processes < 1 || *workers < 1 || *most < 1 {
		fmt.Fprintln(os.Stderr, "usage: llm [flags] STORE-URL UPSTREAM-URL")
		flag.PrintDefaults()
		os.Exit(64)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *runFor)
	defer cancel()
	if err := run(ctx, b, *workers, *most, *report, flag.Arg(0), flag.Arg(1)); err != nil {
		fmt.Fprintln(os.Stderr, "llm:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, b budget, workers int, most int64, report time.Duration, storeURL, upstream string) (err error) {
	store, err := fleet.Open(ctx, storeURL)
	if err != nil {
		return err
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err = errors.Join(err, store.Close(ending))
	}()
	c, tokens, err := b.controller(store)
	if err != nil {
		return err
	}
	w := worker{url: upstream, most: most, client: &http.Client{
		Timeout:   3*b.window + 2*time.Minute,
		Transport: admit.HTTP{Controller: c, Cost: func(*http.Request) int64 { return most }}.Transport(nil),
	}}
	failed := make(chan error, workers)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			if err := w.work(ctx); err != nil {
				failed <- err
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		group.Wait()
	}()
	for ticker := time.NewTicker(report); ; {
		select {
		case <-ticker.C:
		case err := <-failed:
			return err
		case <-ended:
			fmt.Printf("done: %d prompts, %d tokens\n", w.prompts.Load(), w.tokens.Load())
			return nil
		}
		fmt.Printf("%d prompts, %d tokens, %s\n", w.prompts.Load(), w.tokens.Load(), scope(tokens))
	}
}

// A budget is what the upstream allows.
type budget struct {
	requests, tokens int64
	window           time.Duration
	atOnce           int64
	processes        int64
}

// controller returns the controller of a process.
//
// The windows of the rates are longer than that of the upstream, by a sixteenth. So a window of
// the upstream has no more than the budget even if requests reach it that much later than they
// were granted: they wait in the queue, and on the way. The budgets are two percent lower than
// the limits, so that the upstream always has some left and pauses no process.
func (b budget) controller(store *fleet.Client) (*admit.Controller, *fleet.Semaphore, error) {
	window := b.window + b.window/16
	var errs []error
	open := func(name string, n int64, opts ...fleet.Option) *fleet.Semaphore {
		opts = append(opts, fleet.TTL(max(time.Second, min(window, 15*time.Second))), fleet.UnavailableAfter(2*window+time.Minute),
			fleet.FailOpen(max(1, n/b.processes)), fleet.FailOpenAfter(max(time.Second, window)))
		s, err := store.Semaphore("llm/"+name, n, opts...)
		errs = append(errs, err)
		return s
	}
	requests := open("requests", b.requests-b.requests/50, fleet.Rate(window))
	tokens := open("tokens", b.tokens-b.tokens/50, fleet.Rate(window))
	atOnce := open("at-once", b.atOnce)
	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
	}
	return admit.New(admit.Config{Name: "llm", Queue: wfq.Over(atOnce, b.atOnce), Rate: requests, Budget: tokens}), tokens, nil
}

// scope reports whether the process uses the store, or a budget of its own.
func scope(tokens *fleet.Semaphore) string {
	if tokens.Stats().FailedOpen {
		return "with budgets of its own"
	}
	return "with the budgets of all"
}

// A worker sends prompts.
type worker struct {
	url    string
	most   int64
	client *http.Client

	prompts, tokens atomic.Int64
}

// work sends prompts until ctx ends.
func (w *worker) work(ctx context.Context) error {
	for ctx.Err() == nil {
		err := w.prompt(context.WithoutCancel(ctx)) // a prompt that was sent is not cancelled: the upstream would go on with it
		if err != nil && admit.RejectionOf(err) == nil {
			return err
		}
		if r := admit.RejectionOf(err); r != nil {
			select {
			case <-time.After(max(r.RetryAfter, 10*time.Millisecond)):
			case <-ctx.Done():
			}
		}
	}
	return nil
}

// prompt sends a prompt, and settles what it has cost.
func (w *worker) prompt(ctx context.Context) error {
	body, err := json.Marshal(map[string]any{"prompt": "Write a haiku about semaphores.", "max_tokens": w.most})
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := w.client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusTooManyRequests {
		admit.SettleResponse(resp, 0)
		return nil // the transport has paused the rates: the next prompt waits
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return fmt.Errorf("%s: %s", resp.Status, text)
	}
	var completion struct {
		Usage struct {
			TotalTokens int64 `json:"total_tokens"`
		} `json:"usage"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&completion); err != nil {
		return err
	}
	admit.SettleResponse(resp, completion.Usage.TotalTokens)
	w.prompts.Add(1)
	w.tokens.Add(completion.Usage.TotalTokens)
	return nil
}
