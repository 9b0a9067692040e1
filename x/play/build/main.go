// Command build writes what the page of the playground loads and what is not in the repository: the
// program, compiled to WebAssembly, and wasm_exec.js of the same Go toolchain.
//
//	go run ./x/play/build                # into the site that the next build of sema embeds
//	go run ./x/play/build -to DIR -site  # all files, for a static site
package main

import (
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sema-go/sema/x/play/site"
)

func main() {
	to := flag.String("to", "", "directory to write to (default: that of the embedded site)")
	all := flag.Bool("site", false, "also write the page: a static site that works under any path")
	flag.Parse()
	if err := build(*to, *all); err != nil {
		fmt.Fprintln(os.Stderr, "build the playground:", err)
		os.Exit(1)
	}
}

func build(to string, all bool) error {
	module, err := command("go", "list", "-f", "{{.Dir}}", "github.com/sema-go/sema/x/play")
	if err != nil {
		return err
	}
	if to == "" {
		to = filepath.Join(module, "site", "built")
	}
	if err := os.MkdirAll(to, 0o777); err != nil {
		return err
	}
	if all {
		if err := writePage(to); err != nil {
			return err
		}
	}
	root, err := command("go", "env", "GOROOT")
	if err != nil {
		return err
	}
	glue, err := os.ReadFile(filepath.Join(root, "lib", "wasm", "wasm_exec.js"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(to, "wasm_exec.js"), glue, 0o666); err != nil {
		return err
	}
	return buildProgram(to)
}

// buildProgram compiles and compresses the program. The result depends on the source and the
// toolchain only.
func buildProgram(to string) error {
	temporary, err := os.MkdirTemp("", "sema-play-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	file := filepath.Join(temporary, "play.wasm")
	if _, err := command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o", file, "github.com/sema-go/sema/x/play/wasm"); err != nil {
		return err
	}
	program, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(program); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	fmt.Printf("%s: %.2f MB, %.2f MB compressed\n", filepath.Join(to, "play.wasm.gz"), float64(len(program))/1e6, float64(packed.Len())/1e6)
	return os.WriteFile(filepath.Join(to, "play.wasm.gz"), packed.Bytes(), 0o666)
}

// writePage writes the files of the page.
func writePage(to string) error {
	page := site.Page()
	return fs.WalkDir(page, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(page, path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, path), content, 0o666)
	})
}

// command returns the output of a program that runs for WebAssembly builds.
func command(name string, args ...string) (string, error) {
	c := exec.Command(name, args...)
	if args[0] == "build" {
		c.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm")
	}
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, args[0], err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}
