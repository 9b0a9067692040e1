package sema_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const modulePath = "github.com/sema-go/sema"

// rooms is the order of the packages of this module: one may import only those
// above it. A package that is not listed may be imported by nobody.
var rooms = []string{
	"internal/callsite", "internal/describe", "internal/seal", ".", "wfq", "classic", "pool", "group", "internal/list",
	"internal/enginetest", "internal/enginetest/redistest", "internal/enginetest/pgtest", "internal/enginetest/etcdtest", "internal/proctest",
	"host/internal/futex", "host/internal/tally", "host", "host/posix", "host/sysv", "admit",
	"internal/survey", "fleet/protocol", "internal/sessiontest", "fleet", "internal/leasing", "fleet/memstore", "fleet/fleettest", "sematest",
}

// testKits are the packages that are for tests, and may import testing
// libraries.
var testKits = []string{"fleet/fleettest", "sematest"}

func TestLibraryPackagesImportNoThirdPartyAndNothingBelow(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := 0
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; packages++ {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		room := roomOf(p.ImportPath)
		if room == "examples" || strings.HasPrefix(room, "examples/") {
			continue
		}
		rank := slices.Index(rooms, room)
		if rank < 0 {
			t.Errorf("package %s is not in the list of rooms", room)
		}
		for _, imported := range p.Imports {
			other := roomOf(imported)
			switch {
			case other == "" && !isStandard(imported) && !slices.Contains(testKits, room):
				t.Errorf("%s imports %s: library packages have no third-party imports", room, imported)
			case other != "" && (slices.Index(rooms, other) < 0 || slices.Index(rooms, other) >= rank):
				t.Errorf("%s imports %s, which is not above it", room, other)
			}
		}
	}
	if packages == 0 {
		t.Error("no packages were listed")
	}
}

// roomOf is the path below the module, "." for its root, "" if outside.
func roomOf(importPath string) string {
	if importPath == modulePath {
		return "."
	}
	if room, ok := strings.CutPrefix(importPath, modulePath+"/"); ok {
		return path.Clean(room)
	}
	return ""
}

func isStandard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}
