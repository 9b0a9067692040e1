package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/sema-go/sema/cmd/sema/internal/printable"
)

// A format is how results are written.
type format string

const (
	table     format = "table"
	wide      format = "wide"
	jsonLines format = "json"
)

// String, Set and Type are for flags.
func (f *format) String() string { return string(*f) }

// Type is what help calls it.
func (*format) Type() string { return "format" }

// Set takes what there is.
func (f *format) Set(text string) error {
	switch format(text) {
	case table, wide, jsonLines:
		*f = format(text)
		return nil
	}
	return fmt.Errorf("want json, table or wide")
}

// outputFlag adds -o.
func outputFlag(c *cobra.Command) *format {
	f := table
	c.Flags().VarP(&f, "output", "o", "json, table or wide")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json", "table", "wide"}, cobra.ShellCompDirectiveNoFileComp))
	return &f
}

// writeJSON writes a value as indented JSON.
func writeJSON(w io.Writer, value any) error { return printable.WriteJSON(w, value, "  ") }

// colours reports whether the output is a terminal, and colours are not switched off.
func (p *program) colours() bool {
	return isatty.IsTerminal(p.out.Fd()) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// confirm asks the user at the terminal. Without a terminal it fails unless yes.
func (p *program) confirm(yes bool, question string) error {
	if yes {
		return nil
	}
	if !isatty.IsTerminal(p.in.Fd()) {
		return usage("%s Say --yes: there is no terminal to ask at", question)
	}
	fmt.Fprintf(p.err, "%s [y/N] ", printable.Line(question))
	answer, _ := bufio.NewReader(p.in).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return usage("nothing was changed")
}
