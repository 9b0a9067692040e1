package enginetest

import (
	"io"
	"os"
)

// Printed runs f and returns what it writes to standard output, for examples that
// need a server and therefore a test to run them. The test must not be parallel.
func Printed(t TB, f func()) string {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatalf("a pipe: %v", err)
	}
	defer reader.Close()
	stdout := os.Stdout
	os.Stdout = writer
	text := make(chan []byte)
	go func() {
		all, _ := io.ReadAll(reader) // ends with the writer
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
