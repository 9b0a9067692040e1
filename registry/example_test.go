package registry_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/registry"
)

func ExampleRegistry_Semaphore() {
	limits := registry.New() // a program uses registry.Default
	db := limits.Semaphore("db", 40, "PostgreSQL accepts 50 connections; 10 are for migrations")
	limits.Add("mail", rate.New(100, time.Second), "the provider blocks senders above 120 a second")

	permit, _ := db.Acquire(context.Background(), 1)
	defer permit.Release()
	for name, l := range limits.All() {
		fmt.Printf("%s: %v, %d in use: %s\n", name, l.Value, l.Stats.InUse, l.Why)
	}
	// Output:
	// db: 40, 1 in use: PostgreSQL accepts 50 connections; 10 are for migrations
	// mail: 100 per 1s, 0 in use: the provider blocks senders above 120 a second
}

// An error of an acquire has the name of the limit, and the registry its reason.
func ExampleRegistry_Get() {
	limits := registry.New()
	db := limits.Semaphore("db", 0, "PostgreSQL accepts 50 connections")
	_, err := db.TryAcquire(context.Background(), 1)
	var fault *sema.Error
	if errors.As(err, &fault) {
		l, _ := limits.Get(fault.Name)
		fmt.Println(l.Name, "is limited because", l.Why)
	}
	// Output: db is limited because PostgreSQL accepts 50 connections
}

func ExampleRegistry_Load() {
	dir, _ := os.MkdirTemp("", "limits")
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "limits.json")
	limits := registry.New()
	db := limits.Semaphore("db", 40, "PostgreSQL accepts 50 connections")

	os.WriteFile(path, []byte(`{"limits": {"db": {"capacity": 20}}}`), 0o600)
	fmt.Println(limits.Load(path), db.Stats().Capacity)

	// A bad file changes nothing, and all its problems are listed.
	os.WriteFile(path, []byte(`{"limits": {
  "db":  {"capacity": -5},
  "dbb": {"capacity": 10}
}}`), 0o600)
	err := limits.Load(path)
	fmt.Println(strings.ReplaceAll(err.Error(), dir+"/", ""))
	fmt.Println(db.Stats().Capacity)
	// Output:
	// <nil> 20
	// registry: limits.json: 2 problems
	// 	limits.json:2:23: "db": capacity is -5: want a whole number from 0 to 2305843009213693951
	// 	limits.json:3:3: "dbb": no such limit: did you mean "db"?
	// 20
}

func ExampleRegistry_Watch() {
	dir, _ := os.MkdirTemp("", "limits")
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "limits.json")
	os.WriteFile(path, []byte(`{"limits": {}}`), 0o600)

	resized := make(chan int64)
	limits := registry.New(registry.PollEvery(10 * time.Millisecond))
	limits.Semaphore("db", 40, "PostgreSQL accepts 50 connections", sema.Observe(sema.ObserverFunc(func(e sema.Event) {
		if e.Kind == sema.EventResized {
			resized <- e.Capacity
		}
	})))
	if err := limits.Load(path); err != nil { // at the start, a bad file is fatal
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go limits.Watch(ctx, path) // later, it is logged

	os.WriteFile(path+".new", []byte(`{"limits": {"db": {"capacity": 20}}}`), 0o600)
	os.Rename(path+".new", path)
	fmt.Println(<-resized)
	// Output: 20
}

// Mount the page where the other debug pages are, behind the same access control.
func ExampleRegistry_Handler() {
	limits := registry.New()
	limits.Semaphore("db", 40, "PostgreSQL accepts 50 connections")
	mux := http.NewServeMux()
	mux.Handle("/debug/sema", limits.Handler())

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("GET", "/debug/sema?format=json", nil))
	fmt.Println(w.Code, strings.Contains(w.Body.String(), `"why": "PostgreSQL accepts 50 connections"`))
	// Output: 200 true
}

func ExampleRegistry_Drain() {
	limits := registry.New()
	limits.Semaphore("http", 100, "each request takes 10 MB")
	db := limits.Semaphore("db", 40, "PostgreSQL accepts 50 connections")
	slow, _ := db.Acquire(context.Background(), 1)
	defer slow.Release()

	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	fmt.Println(limits.Drain(ctx, "http")) // requests first: they still need the database
	// Output:
	// registry: drain: not finished
	// 	"db" (PostgreSQL accepts 50 connections): 1 of 40 permits are still held
}
