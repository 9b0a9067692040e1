// Command hops counts the functions and files of this project that run during
// one operation, in clients and servers together. That is how much code a
// reader has to follow.
//
//	go -C bench run -cover -covermode=atomic -coverpkg=github.com/sema-go/sema/... ./hops curl
//
// The operations are
//
//   - curl: an acquire over HTTP;
//   - sema: an acquire of a program through a service;
//   - dashboard: the page of a semaphore;
//   - the URL of a store, such as redis://127.0.0.1:6379: an acquire of a program.
//
// With -v it lists the functions.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/coverage"
	"strings"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/x/server"
	_ "github.com/sema-go/sema/x/stores"
)

func main() {
	verbose := flag.Bool("v", false, "list the functions")
	flag.Parse()
	if err := run(flag.Arg(0), *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "hops:", err)
		os.Exit(1)
	}
}

func run(operation string, verbose bool) error {
	do, err := prepare(operation)
	if err != nil {
		return err
	}
	for range 2 { // exclude work that is done only on first use
		if err := do(); err != nil {
			return err
		}
	}
	time.Sleep(300 * time.Millisecond) // let the goroutines of the first operations end
	if err := coverage.ClearCounters(); err != nil {
		return fmt.Errorf("%w (use -cover -covermode=atomic)", err)
	}
	if err := do(); err != nil {
		return err
	}
	functions, err := covered()
	if err != nil {
		return err
	}
	files := map[string]bool{}
	for _, f := range functions {
		file, _, _ := strings.Cut(f, ":")
		files[file] = true
		if verbose {
			fmt.Println(f)
		}
	}
	fmt.Printf("%s: %d functions in %d files\n", operation, len(functions), len(files))
	return nil
}

// prepare returns a function that performs the operation once.
func prepare(operation string) (func() error, error) {
	if strings.Contains(operation, "://") {
		return acquire(operation)
	}
	s, err := server.New(memstore.New(), server.Options{Declared: []server.Declaration{{Name: "db", Capacity: 40}}})
	if err != nil {
		return nil, err
	}
	l := httptest.NewUnstartedServer(s)
	l.Config.Protocols = new(http.Protocols)
	l.Config.Protocols.SetHTTP1(true)
	l.Config.Protocols.SetUnencryptedHTTP2(true)
	l.Start()
	lease := func() error { return request(http.Post(l.URL+"/v1/semaphores/db/leases", "", nil)) }
	switch operation {
	case "curl":
		return lease, nil
	case "sema":
		return acquire("sema://" + l.Listener.Addr().String())
	case "dashboard":
		return func() error { return request(http.Get(l.URL + "/ui/semaphore?name=db")) }, lease()
	}
	return nil, fmt.Errorf("operation %q: want curl, sema, dashboard or the URL of a store", operation)
}

// acquire returns a function that acquires a permit through a store.
func acquire(store string) (func() error, error) {
	client, err := fleet.Open(context.Background(), store)
	if err != nil {
		return nil, err
	}
	s, err := client.Semaphore("hops", 40)
	if err != nil {
		return nil, err
	}
	var held []sema.Permit // releases are separate operations and are not counted
	return func() error {
		p, err := s.Acquire(context.Background(), 1)
		held = append(held, p)
		return err
	}, nil
}

func request(r *http.Response, err error) error {
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode >= 300 {
		return fmt.Errorf("%s", r.Status)
	}
	_, err = io.Copy(io.Discard, r.Body)
	return err
}

// covered returns the functions that ran since the counters were cleared, as file, line
// and name. Generated code is left out.
func covered() (functions []string, err error) {
	dir, err := os.MkdirTemp("", "hops")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := coverage.WriteCountersDir(dir); err != nil {
		return nil, err
	}
	if err := coverage.WriteMetaDir(dir); err != nil {
		return nil, err
	}
	profile := filepath.Join(dir, "profile")
	if out, err := exec.Command("go", "tool", "covdata", "textfmt", "-i", dir, "-o", profile).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go tool covdata: %w: %s", err, out)
	}
	out, err := exec.Command("go", "tool", "cover", "-func", profile).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("go tool cover: %w: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) == 3 && f[2] != "0.0%" && f[0] != "total:" && !strings.Contains(f[0], "bench/hops") && !strings.Contains(f[0], "x/semav1") {
			functions = append(functions, strings.TrimPrefix(f[0], "github.com/sema-go/sema/")+" "+f[1])
		}
	}
	return functions, nil
}
