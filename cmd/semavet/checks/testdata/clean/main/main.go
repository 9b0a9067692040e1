// Command main holds a permit until the process ends.
package main

import (
	"context"
	"log"

	"github.com/sema-go/sema"
)

func main() {
	s := sema.New(1)
	p, err := s.Acquire(context.Background(), 1)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := s.TryAcquire(context.Background(), 1); err != nil {
		log.Print(err)
	}
	log.Print(p.Weight())
}
