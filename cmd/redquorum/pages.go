package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/internal/cli"
)

const completionManual = `Prints a script with which the shell completes verbs, flags and files. The files
that shells read when they start can use it:
  ~/.bashrc                    source <(redquorum completion bash)
  ~/.zshrc, after compinit     source <(redquorum completion zsh)
  ~/.config/fish/config.fish   redquorum completion fish | source
The script for bash needs the package bash-completion.

example:
  redquorum completion bash >/etc/bash_completion.d/redquorum`

func completionVerb() *cobra.Command {
	cmd, _ := newVerb("completion bash|zsh|fish|powershell", "print a script to complete verbs and flags in a shell",
		completionManual)
	cmd.Args, cmd.ValidArgs = cli.One("the shell"), []string{"bash", "zsh", "fish", "powershell"}
	return doesUntilSignal(cmd, func(_ context.Context, c *command) error {
		root := cmd.Root()
		switch c.args[0] {
		case "bash":
			return root.GenBashCompletionV2(c.stdout, true)
		case "zsh":
			return root.GenZshCompletion(c.stdout)
		case "fish":
			return root.GenFishCompletion(c.stdout, true)
		case "powershell":
			return root.GenPowerShellCompletionWithDesc(c.stdout)
		}
		return cli.Usage("the shell is %s; it must be bash, zsh, fish or powershell", cli.Quoted(c.args[0]))
	})
}

const manManual = `Prints the manual page, made of what all verbs say with --help.

example:
  redquorum man | man -l -`

func manVerb() *cobra.Command {
	cmd, _ := newVerb("man", "print the manual page", manManual)
	return doesUntilSignal(cmd, func(_ context.Context, c *command) error {
		_, err := io.WriteString(c.stdout, manPage(cmd.Root()))
		return err
	})
}

func manPage(root *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH REDQUORUM 1 \"\" %q \"User Commands\"\n.SH NAME\nredquorum \\- %s\n", "redquorum "+version(),
		root.Short)
	all := slices.DeleteFunc(cli.All(root), func(cmd *cobra.Command) bool { return cmd.Name() == "help" })
	b.WriteString(".SH SYNOPSIS\n.nf\n")
	for _, cmd := range all {
		if cmd.Runnable() {
			b.WriteString(roff(cmd.UseLine() + "\n"))
		}
	}
	b.WriteString(".fi\n")
	for _, cmd := range all {
		fmt.Fprintf(&b, ".SH %s\n.in 0\n.nf\n", strings.ToUpper(cmd.CommandPath()))
		for line := range strings.Lines(cmd.UsageString()) {
			b.WriteString(roff(line))
		}
		b.WriteString(".fi\n")
	}
	return b.String()
}

func roff(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(line)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		line = `\&` + line
	}
	return line
}
