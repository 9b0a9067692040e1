package semav1

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sema-go/sema/internal/storetest"
)

// TestGenerated_IsUpToDate generates the code again and compares.
func TestGenerated_IsUpToDate(t *testing.T) {
	t.Parallel()
	storetest.Need(t, "protoc", "protobuf-compiler")
	// Read the sources, so that go test knows what its cached result depends on.
	for _, pattern := range []string{"../proto/sema/v1/*.proto", "../../scripts/generate.sh", "../../tools/go.mod"} {
		sources, err := filepath.Glob(pattern)
		if err != nil || len(sources) == 0 {
			t.Fatalf("no file %s", pattern)
		}
		for _, source := range sources {
			if _, err := os.ReadFile(source); err != nil {
				t.Fatal(err)
			}
		}
	}
	fresh := t.TempDir()
	if output, err := exec.Command("../../scripts/generate.sh", fresh).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	generated := goFiles(t, filepath.Join(fresh, "semav1"))
	committed := goFiles(t, ".")
	if len(generated) == 0 {
		t.Fatal("nothing was generated")
	}
	for name, text := range generated {
		if !bytes.Equal(committed[name], text) {
			t.Errorf("%s differs from the output of scripts/generate.sh: run it", name)
		}
	}
	for name := range committed {
		if generated[name] == nil {
			t.Errorf("%s is no longer generated from x/proto: remove it", name)
		}
	}
}

// protocVersion matches the comment with the version of protoc, which differs between machines.
var protocVersion = regexp.MustCompile(`(?m)^// 	protoc        .*$`)

// goFiles returns the generated files in a directory.
func goFiles(t *testing.T, directory string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := filepath.WalkDir(directory, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".pb.go") && !strings.HasSuffix(path, ".connect.go") {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(directory, path)
		files[name] = protocVersion.ReplaceAll(text, nil)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
