package play

import (
	"embed"
	"strings"
)

//go:embed lesson_*.go
var sources embed.FS

// code returns the lines of a lesson's source between "// code:" and "// end", without their
// indentation: the page shows what runs.
func code(file string) string {
	source, err := sources.ReadFile(file)
	if err != nil {
		panic(err) // the file is embedded
	}
	var shown []string
	inside := false
	for line := range strings.Lines(string(source)) {
		switch strings.TrimSpace(line) {
		case "// code:":
			if inside = true; shown != nil {
				shown = append(shown, "\n")
			}
			continue
		case "// end":
			inside = false
			continue
		}
		if inside {
			shown = append(shown, line)
		}
	}
	return strings.TrimRight(unindent(shown), "\n")
}

// unindent removes the indentation that all lines have in common.
func unindent(lines []string) string {
	least := 100
	for _, line := range lines {
		if strings.TrimSpace(line) != "" {
			least = min(least, len(line)-len(strings.TrimLeft(line, "\t")))
		}
	}
	var text strings.Builder
	for _, line := range lines {
		text.WriteString(line[min(least, len(line)-len(strings.TrimLeft(line, "\t"))):])
	}
	return strings.ReplaceAll(text.String(), "\t", "    ")
}
