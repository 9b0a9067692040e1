// Command site writes the documents of Sema as static HTML: run it in the repository with
//
//	go run ./site -o public
//
// The pages can be served from any directory, or opened as files except for their search and
// the playground. sema serve shows the same pages under /docs/.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/sema-go/sema/docs"
	"github.com/sema-go/sema/site/pages"
)

func main() {
	out := flag.String("o", "public", "write the site into this `directory`")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "site writes the documents as static HTML. Run it in the repository.\n\n  go run ./site -o public\n\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

func run(out string) error {
	api, err := os.ReadFile(filepath.FromSlash("x/server/openapi.json"))
	if errors.Is(err, os.ErrNotExist) {
		return errors.New("no x/server/openapi.json here: run go run ./site in the root of the repository")
	}
	if err != nil {
		return err
	}
	site, err := pages.New(pages.Options{Docs: docs.Files, OpenAPI: api, Play: "play/", Repository: docs.Repository})
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
