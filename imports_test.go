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

// layers lists the packages of this module in order: each may import only those before
// it. No package may import one that is not listed.
var layers = []string{
	"internal/axe", "internal/advice", "internal/waitfor", "internal/callsite", "internal/describe", "internal/seal", "internal/list", "internal/monotonic", "internal/bubble", "internal/spinlock", "internal/waitclock", ".", "internal/gatestats", "rate", "wfq", "classic", "pool", "group", "registry",
	"internal/storetest", "internal/storetest/redistest", "internal/storetest/pgtest", "internal/storetest/etcdtest", "internal/storetest/promtest", "internal/proctest", "internal/upstreamtest",
	"host/internal/futex", "host/internal/tally", "host", "host/posix", "host/sysv", "admit", "tune",
	"internal/survey", "internal/filter", "fleet/protocol", "internal/sessiontest", "fleet", "internal/leasing", "fleet/memstore", "fleet/fleettest", "sematest",
}

// testKits are the packages for tests, which may import testing libraries.
var testKits = []string{"fleet/fleettest", "sematest"}

func TestImports_NoThirdPartyAndNothingBelow(t *testing.T) {
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
		pkg := packageOf(p.ImportPath)
		if first, _, _ := strings.Cut(pkg, "/"); first == "examples" || first == "docs" {
			continue
		}
		rank := slices.Index(layers, pkg)
		if rank < 0 {
			t.Errorf("package %s is not in the list of layers", pkg)
		}
		for _, imported := range p.Imports {
			other := packageOf(imported)
			switch {
			case other == "" && !isStandard(imported) && !slices.Contains(testKits, pkg):
				t.Errorf("%s imports %s: library packages have no third-party imports", pkg, imported)
			case other != "" && (slices.Index(layers, other) < 0 || slices.Index(layers, other) >= rank):
				t.Errorf("%s imports %s, which is not above it", pkg, other)
			}
		}
	}
	if packages == 0 {
		t.Error("no packages were listed")
	}
}

// packageOf returns the path below the module, "." for its root, "" if outside.
func packageOf(importPath string) string {
	if importPath == modulePath {
		return "."
	}
	if pkg, ok := strings.CutPrefix(importPath, modulePath+"/"); ok {
		return path.Clean(pkg)
	}
	return ""
}

func isStandard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}
