// Command site writes the documents of Sema as static HTML: run it in the repository with
//
//	go run ./site -o public
//
// The pages can be served from any directory, or opened as files except for their search and
// the playground. sema serve shows the same pages under /docs/.
package main

//go:generate go run . -reference pages/go.json

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/sema-go/sema/docs"
	"github.com/sema-go/sema/site/pages"
	"github.com/sema-go/sema/site/reference"
)

func main() {
	out := flag.String("o", "public", "write the site into this `directory`")
	symbols := flag.String("reference", "", "write the list of Go symbols into this `file` instead")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "site writes the documents as static HTML. Run it in the repository.\n\n  go run ./site -o public\n\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	err := run(*out, *symbols)
	if err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

func run(out, symbols string) error {
	if symbols != "" {
		return writeReference(symbols)
	}
	api, err := os.ReadFile(filepath.FromSlash("x/server/openapi.json"))
	if errors.Is(err, os.ErrNotExist) {
		return errors.New("no x/server/openapi.json here: run go run ./site in the root of the repository")
	}
	if err != nil {
		return err
	}
	packages, err := reference.Read(".")
	if err != nil {
		return err
	}
	site, err := pages.New(pages.Options{Docs: docs.Files, OpenAPI: api, Go: packages, Play: "play/", Repository: docs.Repository})
	if err != nil {
		return err
	}
	if err := site.Write(out); err != nil {
		return err
	}
	fmt.Printf("%d files in %s; compiling the playground\n", len(site.Paths()), out)
	build := exec.Command("go", "run", "./x/play/build", "-site", "-to", filepath.Join(out, "play"))
	build.Stdout, build.Stderr = os.Stdout, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("compile the playground: %w", err)
	}
	fmt.Printf("open %s\n", filepath.Join(out, "index.html"))
	return nil
}

// writeReference writes what the page of the Go packages shows. go generate runs it in the
// directory of this file.
func writeReference(file string) error {
	all, err := reference.Read("..")
	if err != nil {
		return err
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(all); err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}
