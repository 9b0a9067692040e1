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

	"github.com/sema-go/sema/internal/enginetest"
)

// TestGeneratedCodeIsUpToDate generates it again and compares.
func TestGeneratedCodeIsUpToDate(t *testing.T) {
	t.Parallel()
	enginetest.Need(t, "protoc", "protobuf-compiler")
	// They are read here so that go test knows what its result depends on.
	for _, pattern := range []string{"../proto/sema/v1/*.proto", "../../scripts/generate.sh", "../../tools/go.mod"} {
		sources, err := filepath.Glob(pattern)
		if err != nil || len(sources) == 0 {
			t.Fatalf("there is no %s", pattern)
		}
		for _, source := range sources {
			if _, err := os.ReadFile(source); err != nil {
				t.Fatal(err)
			}
		}
	}
	fresh := t.TempDir()
	if said, err := exec.Command("../../scripts/generate.sh", fresh).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	generated := goFiles(t, filepath.Join(fresh, "semav1"))
	committed := goFiles(t, ".")
	if len(generated) == 0 {
		t.Fatal("nothing was generated")
	}
	for name, text := range generated {
		if !bytes.Equal(committed[name], text) {
			t.Errorf("%s is not what scripts/generate.sh makes of x/proto: run it", name)
		}
	}
	for name := range committed {
		if generated[name] == nil {
			t.Errorf("%s is not generated from x/proto any more: remove it", name)
		}
	}
}

// protocVersion is in a comment, and is not the same everywhere.
var protocVersion = regexp.MustCompile(`(?m)^// 	protoc        .*$`)

// goFiles are the generated ones in a directory.
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
