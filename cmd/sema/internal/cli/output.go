package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/printable"
)

// A format is an output format.
type format string

const (
	table     format = "table"
	text      format = "text"
	wide      format = "wide"
	jsonLines format = "json"
)

// A formatFlag is the flag -o. It implements [pflag.Value].
type formatFlag struct {
	chosen  *format
	allowed []string
}

// String implements [pflag.Value].
func (f formatFlag) String() string {
	if f.chosen == nil {
		return ""
	}
	return string(*f.chosen)
}

// Type implements [pflag.Value].
func (formatFlag) Type() string { return "FORMAT" }

// Set implements [pflag.Value].
func (f formatFlag) Set(text string) error {
	if !slices.Contains(f.allowed, text) {
		last := len(f.allowed) - 1
		return fmt.Errorf("want %s or %s", strings.Join(f.allowed[:last], ", "), f.allowed[last])
	}
	*f.chosen = format(text)
	return nil
}

// outputFlag adds the flag -o with the formats of a command. The first one is the default.
func outputFlag(c *cobra.Command, formats ...format) *format {
	chosen := formats[0]
	f := formatFlag{chosen: &chosen}
	for _, one := range formats {
		f.allowed = append(f.allowed, string(one))
	}
	slices.Sort(f.allowed)
	c.Flags().VarP(f, "output", "o", "output `FORMAT`: "+strings.Join(f.allowed, ", "))
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(f.allowed, cobra.ShellCompDirectiveNoFileComp))
	return &chosen
}

// writeJSON writes a value as indented JSON.
func writeJSON(w io.Writer, value any) error { return printable.WriteJSON(w, value, "  ") }

// colours reports whether the output is a terminal and colours are not disabled.
func (p *program) colours() bool {
	return isatty.IsTerminal(p.out.Fd()) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// confirm asks the user at the terminal. Without a terminal, it fails unless yes is true.
func (p *program) confirm(yes bool, question string) error {
	if yes {
		return nil
	}
	if !isatty.IsTerminal(p.in.Fd()) {
		return exit.Misuse("%s", question).With("without a terminal, confirm with --yes")
	}
	fmt.Fprintf(p.err, "%s [y/N] ", printable.Line(question))
	reply, _ := bufio.NewReader(p.in).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(reply)) {
	case "y", "yes":
		return nil
	}
	return exit.Misuse("nothing was changed")
}
