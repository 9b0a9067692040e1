package play

import (
	"embed"
	"strings"
)

//go:embed lesson_*.go
var sources embed.FS

// code returns the lines of a lesson's source that use Sema, so that the page shows what runs.
// They are between "// code:" and "// end"; "// code+:" continues the last part.
func code(file string) string {
	source, err := sources.ReadFile(file)
	if err != nil {
		panic(err) // the file is embedded
	}
	var parts [][]string
	inside := false
	for line := range strings.Lines(string(source)) {
		switch strings.TrimSpace(line) {
		case "// code:":
			parts, inside = append(parts, nil), true
		case "// code+:":
			inside = true
		case "// end":
			inside = false
		default:
			if inside {
				parts[len(parts)-1] = append(parts[len(parts)-1], line)
			}
		}
	}
	var texts []string
	for _, part := range parts {
		texts = append(texts, unindent(part))
	}
	return strings.TrimRight(strings.Join(texts, "\n"), "\n")
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
