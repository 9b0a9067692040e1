package storetest

import (
	"io"
	"os"
)

// Printed runs f and returns what it writes to standard output. It is for
// examples that need a server and are therefore run by a test. The test must
// not be parallel.
func Printed(t TB, f func()) string {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatalf("create a pipe: %v", err)
	}
	defer reader.Close()
	stdout := os.Stdout
	os.Stdout = writer
	text := make(chan []byte)
	go func() {
		all, _ := io.ReadAll(reader) // until the writer is closed
		text <- all
	}()
	func() {
		defer func() {
			os.Stdout = stdout
			writer.Close()
		}()
		f()
	}()
	return string(<-text)
}
