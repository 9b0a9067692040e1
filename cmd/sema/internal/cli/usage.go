package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/printable"
)

// positional checks the arguments of a command against its usage line: words in capitals are
// arguments, [WORD] is optional, WORD… is one or more.
func positional(c *cobra.Command, args []string) error {
	least, most := 0, 0
	var missing string
	for _, word := range strings.Fields(c.Use)[1:] {
		optional, repeated := strings.HasPrefix(word, "["), strings.HasSuffix(word, "…")
		word = strings.Trim(word, "[]…")
		if word == "" || word != strings.ToUpper(word) || strings.HasPrefix(word, "-") {
			break // flags follow
		}
		if !optional {
			if least++; least == len(args)+1 {
				missing = word
			}
		}
		if most++; repeated {
			most = len(args) + least
		}
	}
	switch line := c.CommandPath() + strings.TrimPrefix(c.Use, c.Name()); {
	case len(args) < least:
		return exit.Misuse("missing %s", missing).With("write: %s", line)
	case len(args) > most && most == 0:
		return exit.Misuse("unexpected argument %q", args[0]).With("'%s' takes none, see '%s --help'", c.CommandPath(), c.CommandPath())
	case len(args) > most:
		return exit.Misuse("unexpected argument %q", args[most]).With("write: %s", line)
	}
	return nil
}

// flagError converts an error of package pflag.
func (p *program) flagError(c *cobra.Command, err error) error {
	var (
		unknown *pflag.NotExistError
		invalid *pflag.InvalidValueError
		empty   *pflag.ValueRequiredError
	)
	switch {
	case errors.As(err, &unknown):
		return p.unknownFlag(c, unknown)
	case errors.As(err, &invalid):
		return exit.Misuse("%s %s: %s", flagName(invalid.GetFlag()), printable.Arg(invalid.GetValue()), wanted(invalid))
	case errors.As(err, &empty):
		name, what := pflag.UnquoteUsage(empty.GetFlag())
		return exit.Misuse("%s needs a value (%s): %s", flagName(empty.GetFlag()), name, what)
	}
	return exit.Misuse("%w", err).With("see '%s --help'", c.CommandPath())
}

func flagName(f *pflag.Flag) string { return "--" + f.Name }

// wanted describes the values that a flag takes.
func wanted(e *pflag.InvalidValueError) string {
	switch f := e.GetFlag(); f.Value.Type() {
	case "int", "int64":
		return "want a whole number, such as 4"
	case "bool":
		return "want true or false, or no value"
	case "duration":
		return "want a duration with a unit, such as 30s or 5m"
	}
	return e.Unwrap().Error()
}

// unknownFlag suggests what was meant. Before the command of 'sema run', the most likely
// mistake is a missing --: the flags belong to the command.
func (p *program) unknownFlag(c *cobra.Command, e *pflag.NotExistError) error {
	name := "--" + e.GetSpecifiedName()
	if e.GetSpecifiedShortnames() != "" {
		name = "-" + e.GetSpecifiedShortnames()
	}
	if c.Name() == "run" && !slices.Contains(p.args, "--") {
		return exit.Misuse("unknown flag %s", name).With("if it belongs to the command, put -- before the command: sema run NAME -- COMMAND %s", name)
	}
	hint := fmt.Sprintf("'%s --help' lists all flags", c.CommandPath())
	if like := similarFlag(c, e.GetSpecifiedName()); like != "" {
		hint = fmt.Sprintf("did you mean %s?", like)
	}
	return exit.Misuse("unknown flag %s", name).With("%s", hint)
}

func similarFlag(c *cobra.Command, name string) (like string) {
	if name == "json" && c.Flag("output") != nil {
		return "-o json"
	}
	if len(name) == 1 && c.Flags().ShorthandLookup(name) != nil {
		return "-" + name
	}
	nearest := 3 // maximum number of typing mistakes, plus one
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if d := distance(f.Name, name); d < nearest && len(name) > 2 {
			nearest, like = d, "--"+f.Name
		}
	})
	return like
}

// distance returns the Levenshtein distance of two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

// unknownCommand suggests what was meant.
func unknownCommand(root *cobra.Command, name string) error {
	root.SuggestionsMinimumDistance = 2
	next := "'sema --help' lists all commands"
	if like := root.SuggestionsFor(name); len(like) > 0 {
		slices.SortStableFunc(like, func(a, b string) int { return distance(a, name) - distance(b, name) })
		next = fmt.Sprintf("did you mean '%s'?", strings.Join(like, "' or '"))
	}
	return exit.Misuse("unknown command %q", name).With("%s", next)
}

// helpCommand replaces cobra's help command, which exits with 0 for an unknown command.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Show the help of a command",
		Example: "  sema help run",
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
			for _, one := range c.Root().Commands() {
				if len(args) == 0 && one.IsAvailableCommand() {
					names = append(names, one.Name())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.Root().Help()
			}
			found, rest, err := c.Root().Find(args)
			if err != nil || found == c.Root() || len(rest) > 0 {
				return unknownCommand(c.Root(), strings.Join(args, " "))
			}
			return found.Help()
		},
	}
}

// explainCompletion makes cobra's completion command fail without a known shell.
func explainCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		c.Use = "completion SHELL"
		c.Short = "Print a script that completes commands and names in a shell"
		c.Long = `Print a script that completes commands, flags and semaphore names in a shell:
bash, zsh, fish or powershell.`
		c.Example = `  source <(sema completion bash)                                # this shell
  sema completion bash >/etc/bash_completion.d/sema              # all shells
  sema completion fish >~/.config/fish/completions/sema.fish`
		c.Args = nil
		c.RunE = func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exit.Misuse("missing SHELL").With("write: sema completion bash (or zsh, fish, powershell)")
			}
			return exit.Misuse("unknown shell %q", args[0]).With("want bash, zsh, fish or powershell")
		}
	}
}
